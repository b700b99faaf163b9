package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/parleytest"
)

// Forty calls that only read run concurrently: they take as long as the slowest.
func TestManyReads(t *testing.T) {
	var calls atomic.Int64
	var first, last atomic.Int64
	slow := &funcTool{"Slow", true, func(context.Context, *tool.Call) (*tool.Result, error) {
		n := calls.Add(1)
		first.CompareAndSwap(0, time.Now().UnixNano())
		time.Sleep(time.Duration(n) * time.Second)
		last.Store(time.Now().UnixNano())
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
	if took := time.Duration(last.Load() - first.Load()); took != 40*time.Second {
		t.Errorf("they took %v, the slowest takes 40s", took)
	}
}
