//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

func TestProto(t *testing.T) {
	w := NewWall(WallOptions{Home: os.Getenv("HOME"), Path: os.Getenv("PATH")})
	defer w.Close()
	if err := w.Ready(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"echo hi; cat /etc/shadow; id; ls -la /; touch x; echo a > b; git log --oneline | head -3; node --version; python3 --version; cargo --version; curl -s http://localhost"} {
		cmd := exec.Command("/bin/bash", "-c", s)
		cmd.Dir, _ = os.Getwd()
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		c, err := w.Confine(cmd, View{Roots: []string{cmd.Dir}})
		if err != nil {
			t.Fatal(err)
		}
		err = cmd.Start()
		c.Started(err)
		err = cmd.Wait()
		t.Log(err, c.Err(), c.Refused(), out.String())
	}
}

func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	w := NewWall(WallOptions{Home: os.Getenv("HOME"), Path: os.Getenv("PATH")})
	defer w.Close()
	for _, walled := range []bool{false, true} {
		name := "unconfined"
		if walled {
			name = "wall"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command("/bin/bash", "-c", "true")
				cmd.Dir = dir
				var c *Confined
				if walled {
					var err error
					if c, err = w.Confine(cmd, View{Roots: []string{dir}}); err != nil {
						b.Fatal(err)
					}
				}
				err := cmd.Start()
				if walled {
					c.Started(err)
				}
				if err == nil {
					err = cmd.Wait()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
