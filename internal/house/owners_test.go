package house

import (
	"go/ast"
	"strings"
	"testing"
)

// identified counts, by file, the places outside of the recorder that set the session id, the uuid
// or the time of a message, or the uuid of an entry. The list may only shrink.
var identified = map[string]int{
	"agent/replay.go":     6, // stored messages keep what they were stored with
	"agent/rpc.go":        1, // the uuid of a prompt, which the response names
	"agent/serve.go":      1, // there is no conversation, hence no recorder
	"agent/sessions.go":   1, // entries of a fork, before its conversation exists
	"engine/schedules.go": 1, // the uuid of a prompt, before it has a record
	"engine/hook/hook.go": 3, // messages about hooks, which run in agents without a conversation as well
}

// Only the recorder sets uuids, session ids and times.
func TestRecorderIdentifies(t *testing.T) {
	got := map[string]int{}
	for _, f := range goFiles(t) {
		if f.test || f.dir != "agent" && f.dir != "engine" && !strings.HasPrefix(f.dir, "engine/") || f.dir == "engine/internal/recorder" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				typ, ok := n.Type.(*ast.SelectorExpr)
				if !ok || !isIdent(typ.X, "wire") || typ.Sel.Name == "HookBase" {
					return true
				}
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok && (isIdent(kv.Key, "SessionID") || isIdent(kv.Key, "Timestamp") || isIdent(kv.Key, "UUID") && (isNewID(kv.Value) || f.name == "agent/replay.go")) {
						got[f.name]++
					}
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					sel, ok := left.(*ast.SelectorExpr)
					if ok && (sel.Sel.Name == "UUID" && i < len(n.Rhs) && isNewID(n.Rhs[i]) || sel.Sel.Name == "Timestamp" && i < len(n.Rhs) && !isEmptyText(n.Rhs[i])) {
						got[f.name]++
					}
				}
			}
			return true
		})
	}
	for name, n := range got {
		if n > identified[name] {
			t.Errorf("%s sets %d uuids, session ids or times, at most %d are allowed: let the recorder set them", name, n, identified[name])
		}
	}
	for name, n := range identified {
		if got[name] < n {
			t.Errorf("%s sets %d uuids, session ids or times; lower its number in this list from %d", name, got[name], n)
		}
	}
}

// A conversation never changes its Config: no statement assigns to a member of cfg.
func TestConfigIsNeverChanged(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || f.dir != "engine" {
			continue
		}
		check := func(e ast.Expr) {
			for {
				switch x := e.(type) {
				case *ast.IndexExpr:
					e = x.X
				case *ast.SelectorExpr:
					if x.Sel.Name == "cfg" {
						t.Errorf("%s: an assignment changes the Config of a conversation", f.name)
						return
					}
					e = x.X
				default:
					return
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					check(e)
				}
			case *ast.IncDecStmt:
				check(n.X)
			}
			return true
		})
	}
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func isEmptyText(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Value == `""`
}

// isNewID reports whether an expression is session.NewID().
func isNewID(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isIdent(sel.X, "session") && sel.Sel.Name == "NewID"
}
