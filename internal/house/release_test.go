package house

import (
	"regexp"
	"slices"
	"testing"
)

// TestReleaseNotes: /release-notes contains every version of CHANGELOG.md, and the
// current version.
func TestReleaseNotes(t *testing.T) {
	names := func(file, pattern string) (list []string) {
		for _, m := range regexp.MustCompile(`(?m)`+pattern).FindAllSubmatch(read(t, file), -1) {
			list = append(list, string(m[1]))
		}
		return list
	}
	notes := names("engine/command_releasenotes.md", `^## (\S+)$`)
	for _, version := range append(names("CHANGELOG.md", `^## \[(\d[^\]]*)\]`), names("config.go", `^const Version = "(.*)"`)...) {
		if !slices.Contains(notes, version) {
			t.Errorf("engine/command_releasenotes.md: add a part ## %s with what it brings to users, in a few lines", version)
		}
	}
}
