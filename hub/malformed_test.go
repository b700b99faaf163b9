package hub

import (
	"testing"

	"github.com/parley-go/parley/internal/malformed"
)

// TestMalformedFrames checks that no message of an agent ends the hub, which reads it again from the
// journal at each start.
func TestMalformedFrames(t *testing.T) {
	f := newFold()
	for i, line := range malformed.Messages() {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%.300s: %v", line, p)
				}
			}()
			f.add(&Entry{N: uint64(i + 1), Kind: KindFrame, Data: []byte(line)})
		}()
	}
}
