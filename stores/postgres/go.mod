// Sessions in PostgreSQL, in a module of its own: who needs none of it links none of it.
//
// Here the module of Parley is the one of this tree, by way of stores/go.work. A release
// adds the version that it goes with (see CONTRIBUTING.md).
module github.com/parley-go/parley/stores/postgres

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.11.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/text v0.29.0 // indirect
)
