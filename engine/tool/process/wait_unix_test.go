//go:build unix

package process

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitOutputOnABusyMachine checks that the rest of a command's output is awaited, however long
// this process takes to read it, and that nobody waits for a process that only holds the output open.
func TestWaitOutputOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		tree := &Tree{output: r, exited: make(chan struct{}), drained: make(chan struct{})}
		close(tree.exited)
		wait := func() chan bool {
			left := make(chan bool, 1)
			go func() { left <- tree.WaitOutput(&Spool{}) }()
			time.Sleep(time.Minute)
			return left
		}
		w.WriteString("x")
		left := wait()
		select {
		case <-left:
			t.Fatal("it gave up although there was output to read")
		default:
		}
		r.Read(make([]byte, 1))
		if !<-left {
			t.Error("nothing was said to hold the output open")
		}
		w.Close()
		left = wait()
		close(tree.drained)
		if <-left {
			t.Error("the output was said to be open after its end")
		}
	})
}
