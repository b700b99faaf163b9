package serve_test

import (
	"net/http"
	"testing"

	"github.com/parley-go/parley/serve"
)

// TestClosedServerAcceptsNothing checks that a request which arrives beside or after Close is
// refused: the audit log and the tokens are closed, and Close waits for nothing that starts later.
func TestClosedServerAcceptsNothing(t *testing.T) {
	r := newRig(t, nil, nil)
	get := func() int { return r.do(serve.ScopeView, http.MethodGet, "/v1/sessions", nil).StatusCode }
	if code := get(); code != http.StatusOK {
		t.Fatalf("status %d before Close", code)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.server.Close()
	}()
	for beside := true; beside; {
		select {
		case <-closed:
			beside = false
		default:
		}
		if code := get(); code != http.StatusOK && code != http.StatusServiceUnavailable {
			t.Fatalf("status %d beside Close", code)
		}
	}
	if code := get(); code != http.StatusServiceUnavailable {
		t.Errorf("status %d after Close", code)
	}
}
