package acp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/parley-go/parley"
)

// TestRegistryEntry checks that the entry for the registry of agents names the files of
// this version, one for each platform of a release.
func TestRegistryEntry(t *testing.T) {
	data, err := os.ReadFile("../docs/registry-entry.json")
	if err != nil {
		t.Fatal(err)
	}
	var entry struct {
		ID, Version  string
		Distribution struct {
			Binary map[string]struct {
				Archive, Cmd string
				Args         []string
			}
		}
	}
	if err := json.Unmarshal(data, &entry); err != nil {
		t.Fatal(err)
	}
	if entry.ID != "parley" || entry.Version != parley.Version {
		t.Errorf("%s %s, want parley %s", entry.ID, entry.Version, parley.Version)
	}
	for _, os := range []string{"linux", "darwin", "windows"} {
		for arch, theirs := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
			file := fmt.Sprintf("parley_%s_%s_%s", parley.Version, os, arch)
			if os == "windows" {
				file += ".exe"
			}
			b := entry.Distribution.Binary[os+"-"+theirs]
			if !strings.HasSuffix(b.Archive, "/v"+parley.Version+"/"+file) || b.Cmd != "./"+file || fmt.Sprint(b.Args) != "[acp]" {
				t.Errorf("%s/%s: %+v, want %s", os, arch, b, file)
			}
		}
	}
}
