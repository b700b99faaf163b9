package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every flag and metric in the manifests exists.
func TestManifestsUseKnownFlagsAndMetrics(t *testing.T) {
	files, err := filepath.Glob("../../deploy/*")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	f := &nodeFlags{}
	f.addUp(fs)
	own := regexp.MustCompile(`(?m)(?:args: |command: |ExecStart=.*parley-fleet )((?:.|\n +)*?)(?:\]|\n[^ ])`)
	flags, metrics, seen := regexp.MustCompile(`--([a-z-]+)`), regexp.MustCompile(`parley_fleet_[a-z_]+`), 0
	source, err := os.ReadFile("status.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range own.FindAllStringSubmatch(string(data), -1) {
			for _, m := range flags.FindAllStringSubmatch(part[1], -1) {
				if seen++; fs.Lookup(m[1]) == nil {
					t.Errorf("%s uses --%s, which does not exist", filepath.Base(file), m[1])
				}
			}
		}
		for _, name := range metrics.FindAllString(string(data), -1) {
			if !strings.Contains(string(source), `"`+name+`"`) {
				t.Errorf("%s uses the metric %s, which does not exist", filepath.Base(file), name)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d flags were found in the manifests", seen)
	}
}
