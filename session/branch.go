package session

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

// GitBranch returns the branch of the repository that contains a directory, or the start of the commit if none is
// checked out. It is empty outside of repositories. It runs nothing and reads only regular files.
func GitBranch(dir string) string {
	for {
		git := filepath.Join(dir, ".git")
		if info, err := os.Stat(git); err == nil {
			if !info.IsDir() { // a worktree: the file names the directory
				if path, ok := strings.CutPrefix(smallFile(git), "gitdir: "); ok {
					if git = path; !filepath.IsAbs(git) {
						git = filepath.Join(dir, git)
					}
				}
			}
			head := smallFile(filepath.Join(git, "HEAD"))
			if name, ok := strings.CutPrefix(head, "ref: refs/heads/"); ok {
				return name
			}
			return head[:min(8, len(head))]
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// smallFile returns the first line of a small regular file, or "" for any other.
func smallFile(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.ToValidUTF8(string(data), ""), "\n")
	return strings.TrimSpace(line)
}
