package engine

import "github.com/parley-go/parley/engine/policy"

// StickPolicy has every decision about a call wait for f first, until undo is called.
func StickPolicy(f func()) (undo func()) {
	was := decidePolicy
	decidePolicy = func(p *policy.Policy, req *policy.Request) policy.Decision {
		f()
		return was(p, req)
	}
	return func() { decidePolicy = was }
}
