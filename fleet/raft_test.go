package fleet

import "testing"

// The times that this package sets are those of the server: the server had values of its own in them.
func TestElectionTimes(t *testing.T) {
	for i, d := range serverTimes {
		if d == 0 {
			t.Errorf("the server has no variable for time %d: look into its file raft.go", i)
		}
	}
}
