//go:build !linux

package serve_test

import "errors"

// serverEnv makes this program a server: see killed_test.go.
const serverEnv = "PARLEY_TEST_SERVER"

func runServer(string) error { return errors.New("not on this system") }
