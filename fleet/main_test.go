package fleet

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fleet-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	serverDir = dir
	code := m.Run()
	if s, err := oneServer(); err == nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
