package main

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/engine/settings"
)

func TestDescribeBuild(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	for _, c := range []struct {
		main     string
		settings []debug.BuildSetting
		want     string
	}{
		{"(devel)", nil, parley.Version},
		{"v1.2.3", nil, "1.2.3"},
		{"v0.0.0-20260101000000-0123456789ab", []debug.BuildSetting{commit}, parley.Version + ", commit 0123456789ab"},
		{"(devel)", []debug.BuildSetting{commit, {Key: "vcs.modified", Value: "true"}}, parley.Version + ", commit 0123456789ab with changes"},
	} {
		if got := describeBuild(&debug.BuildInfo{Main: debug.Module{Version: c.main}, Settings: c.settings}); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestSettingsExplained checks that each explained setting, on or off, is a known one.
func TestSettingsExplained(t *testing.T) {
	var on []string
	for line := range strings.Lines(string(settingsExplained)) {
		trimmed := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(trimmed, "// , "); ok {
			rest, _, _ = strings.Cut(rest, "   ") // the description
			on = append(on, ", "+rest)
		} else if !strings.HasPrefix(trimmed, "//") {
			on = append(on, strings.TrimRight(line, "\n"))
		}
	}
	s, err := settings.Load(settings.Options{Flag: strings.Join(on, "\n")})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(on, "\n"))
	}
	if names, at := s.Unknown(); len(names) > 0 {
		t.Errorf("%v at %v", names, at)
	}
	if !s.Bool("sandbox", "enabled") || len(s.Rules()) < 7 {
		t.Errorf("%s", s.Effective())
	}
}
