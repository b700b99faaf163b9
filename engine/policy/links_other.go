//go:build !unix

package policy

import "os"

// An entry is the directory entry of a name. The zero value means that there is none.
type entry struct{ info os.FileInfo }

// lookAt looks up a path without following a link at its end.
func lookAt(path string) entry {
	fi, err := os.Lstat(path)
	if err != nil {
		return entry{}
	}
	return entry{fi}
}

// entryOf returns the entry for the result of a stat.
func entryOf(fi os.FileInfo) entry { return entry{fi} }

func (e entry) exists() bool      { return e.info != nil }
func (e entry) isDir() bool       { return e.info != nil && e.info.IsDir() }
func (e entry) isLink() bool      { return e.info != nil && e.info.Mode()&os.ModeSymlink != 0 }
func (e entry) names() uint64     { return 2 } // unknown: assume several
func (e entry) same(o entry) bool { return os.SameFile(e.info, o.info) }
