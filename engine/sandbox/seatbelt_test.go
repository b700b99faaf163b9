package sandbox

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// TestSeatbeltProfile compares a profile with testdata/seatbelt.sb, which a person
// reviews when it changes, because no test here runs on macOS.
func TestSeatbeltProfile(t *testing.T) {
	got, err := seatbelt([]grant{
		{"/usr", toRead},
		{"/dev/null", toWrite},
		{"/private/etc", toList},
		{"/Users/ann/src", toRead},
		{`/Users/ann/with "quotes" and \`, toRead},
		{"/Users/ann/line\nbreak", toRead},
		{"/Users/ann/not \xff utf-8", toRead},
	}, []string{"/Users/ann/.ssh", "/Users/ann/src/.env"})
	if err != nil {
		t.Fatal(err)
	}
	const name = "testdata/seatbelt.sb"
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the profile is\n%s\nwant, as in %s\n%s", got, name, want)
	}
}

// TestSeatbeltHidesOrFails checks that a path which cannot be represented in a profile
// is never left readable.
func TestSeatbeltHidesOrFails(t *testing.T) {
	for _, path := range []string{"/a\nb", "/a\x00b", "/a\xffb", "/a\u0085b", ""} {
		if _, err := seatbelt(nil, []string{path}); err == nil {
			t.Errorf("a profile without the hidden path %q was returned", path)
		}
		if profile, err := seatbelt([]grant{{path, toWrite}}, nil); err != nil || strings.Contains(profile, "file-write*") {
			t.Errorf("the path %q was granted, or failed with %v:\n%s", path, err, profile)
		}
	}
}
