// Sessions in Redis, in a module of its own: who needs none of it links none of it.
//
// Here the module of Parley is the one of this tree, by way of stores/go.work. A release
// adds the version that it goes with (see CONTRIBUTING.md).
module github.com/parley-go/parley/stores/redis

go 1.26.0

require (
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
