package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// TestOtherWaysToADeniedFile checks a file outside of the project that a rule denies and
// that has another name inside, or a link that leads to it. A command that reads a whole
// directory, or files by a pattern, must not be allowed just because the denied path is
// elsewhere.
func TestOtherWaysToADeniedFile(t *testing.T) {
	for _, c := range []struct {
		way, command string
		want         wire.PermissionBehavior
	}{
		{"hard", "grep -r x .", wire.BehaviorAsk}, {"hard", "cat d/?", wire.BehaviorAsk}, {"hard", "cp -r d e", wire.BehaviorAsk},
		{"hard", "cat d/a", wire.BehaviorDeny}, {"hard", "rg x d", wire.BehaviorAsk}, {"hard", "tar cf - d", wire.BehaviorAsk}, {"hard", "zip -r - .", wire.BehaviorAsk},
		{"hard", "find . -type f -exec cat {} +", wire.BehaviorAsk}, {"hard", "find d -exec cat {} +", wire.BehaviorAsk}, {"none", "find d -exec cat {} +", wire.BehaviorAllow},
		{"link", "grep -R x .", wire.BehaviorAsk}, {"link", "cat d/?", wire.BehaviorAsk}, {"link", "cp -rL d e", wire.BehaviorAsk}, {"link", "tar chf - d", wire.BehaviorAsk},
		{"directory", "grep -R x .", wire.BehaviorAsk}, {"directory", "cp -rL d e", wire.BehaviorAsk}, {"directory", "rg -L x", wire.BehaviorAsk},
		{"none", "grep -r x .", wire.BehaviorAllow}, {"none", "cp -r d e", wire.BehaviorAllow}, {"none", "rg -L x", wire.BehaviorAllow}, {"none", "cat d/?", wire.BehaviorAllow},
		{"directory", "cat */secret", wire.BehaviorAsk}, {"directory", "cat ?/s*", wire.BehaviorAsk}, {"directory", "cat ./*/a/*", wire.BehaviorAsk},
		{"directory", "grep -R x */", wire.BehaviorAsk}, {"directory", "grep -R x ?", wire.BehaviorAsk}, {"directory", "cat d/*/secret", wire.BehaviorAsk},
		{"elsewhere", "grep -R x .", wire.BehaviorAllow}, {"none", "cat ./*/secret", wire.BehaviorAllow}, {"none", "grep -R x ./*/", wire.BehaviorAllow},
	} {
		t.Run(c.way, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			root, secret := top+"/w", top+"/out/secret"
			for _, err := range []error{os.MkdirAll(root+"/d", 0o700), os.Mkdir(top+"/out", 0o700), os.WriteFile(secret, nil, 0o600), os.WriteFile(top+"/other", nil, 0o600)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{root + "/d/a", root + "/b"} {
				switch c.way {
				case "hard":
					err = os.Link(secret, name)
				case "link":
					err = os.Symlink(secret, name)
				case "directory":
					err = os.Symlink(top+"/out", name)
				case "elsewhere":
					err = os.Symlink(top+"/other", name)
				}
				if err != nil {
					t.Skip(err)
				}
			}
			rules := []Rule{{Behavior: wire.BehaviorDeny, Tool: "Read", Content: "/" + secret}}
			for _, program := range []string{"grep", "cat", "cp", "rg", "tar", "zip", "find"} {
				rules = append(rules, Rule{Behavior: wire.BehaviorAllow, Tool: "Bash", Content: program + ":*"})
			}
			req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: c.command}}, Cwd: root, Roots: []string{root}, Home: "/h"}
			for _, req.Mode = range []wire.PermissionMode{wire.ModeDefault, wire.ModeBypassPermissions} {
				if d := New(rules...).Decide(req); d.Behavior != c.want {
					t.Errorf("%s in mode %s: %s (%s), want %s", c.command, req.Mode, d.Behavior, d.Reason, c.want)
				}
			}
		})
	}
}
