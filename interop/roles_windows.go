package interop

import "os"

// passed are the signals that a tap forwards.
var passed = []os.Signal{os.Interrupt}

// runs reports whether the process with this id exists and has not ended.
func runs(pid int) bool {
	p, err := os.FindProcess(pid)
	if err == nil {
		p.Release()
	}
	return err == nil
}
