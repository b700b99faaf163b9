// Command fakecli is the fake CLI for benchmarks of SDKs: an agent that answers at
// once with as much as the prompt requests. See [parrot.Agent].
package main

import (
	"os"

	"github.com/parley-go/parley/parleytest/parrot"
)

func main() { os.Exit(parrot.ServeMain(os.Args[1:], os.Stdin, os.Stdout)) }
