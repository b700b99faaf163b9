//go:build !unix

package postgres_test

import (
	"errors"
	"os/exec"
)

func runAs(*exec.Cmd, int, int) error {
	return errors.New("this system has no users to run PostgreSQL as")
}
