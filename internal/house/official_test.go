package house

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// Outside of interop/, make interop runs the tests whose names begin with TestOfficial.
// Any other test that needs the official peers would always skip.
func TestOfficialPeersByName(t *testing.T) {
	helpers := []string{"officialPeers", "officialCLI", "newPeer", "peers"}
	seen := 0
	for _, file := range goFiles(t) {
		if !slices.Contains([]string{"parleytest", "cmd/parley", "session", "examples"}, file.dir) {
			continue
		}
		for _, d := range file.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if id, ok := c.Fun.(*ast.Ident); ok && slices.Contains(helpers, id.Name) {
					seen++
					if !strings.HasPrefix(f.Name.Name, "TestOfficial") {
						t.Errorf("%s: %s needs the official peers, so its name must begin with TestOfficial", file.name, f.Name.Name)
					}
				}
				return true
			})
		}
	}
	if seen < 7 {
		t.Errorf("found only %d calls that need the official peers", seen)
	}
}
