package agent_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/parleytest"
)

// Forty calls that only read run concurrently: each waits for all.
func TestManyReads(t *testing.T) {
	var calls atomic.Int64
	all := make(chan struct{})
	slow := &funcTool{"Slow", true, func(context.Context, *tool.Call) (*tool.Result, error) {
		if calls.Add(1) == 40 {
			close(all)
		}
		<-all
		return tool.Text("fine", nil), nil
	}}
	turn := parleytest.Call("Slow", `{}`)
	for range 39 {
		turn.Call("Slow", `{}`)
	}
	p := prompt(t, parleytest.Script(turn, parleytest.Say("ok")), withTools(slow))
	if p.r.Result != "ok" || calls.Load() != 40 {
		t.Errorf("%d calls, %+v", calls.Load(), p.r)
	}
}
