package session

import (
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/text/unicode/norm"
)

// slugMax is the maximum length of the name of a project directory without a hash.
const slugMax = 200

// ProjectKey returns the name of the directory for the sessions of a working directory: the path
// with links resolved and characters composed, with a dash for every character but ASCII letters
// and digits, and a hash instead of the end of a long one.
func ProjectKey(cwd string) string {
	if real, err := filepath.EvalSymlinks(cwd); err == nil {
		cwd = real
	} else {
		cwd = filepath.Clean(cwd)
	}
	return slug(norm.NFC.String(cwd))
}

func slug(path string) string {
	var b strings.Builder
	var hash int32
	for _, c := range utf16.Encode([]rune(path)) { // in UTF-16 units, like the programs that share the layout
		hash = hash*31 + int32(c)
		if c < 0x80 && (c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z') {
			b.WriteByte(byte(c))
		} else {
			b.WriteByte('-')
		}
	}
	s := b.String()
	if len(s) <= slugMax {
		return s
	}
	h := int64(hash)
	if h < 0 {
		h = -h
	}
	return s[:slugMax] + "-" + strconv.FormatInt(h, 36)
}
