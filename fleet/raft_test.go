package fleet

import "testing"

// The variables that this package sets are the server's election times: they had its defaults.
func TestElectionTimes(t *testing.T) {
	for i, d := range serverTimes {
		if d == 0 {
			t.Errorf("the server has no variable for time %d: look into its file raft.go", i)
		}
	}
}
