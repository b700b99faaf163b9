package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// ownTemp returns a directory for the files of tools: below the temporary directory, or
// the next best place if another user created that one first. It belongs to this user
// only and its path has no symbolic links. It is empty if there is no such place;
// problem then explains why, or why the first choice was not used.
func (cfg *Config) ownTemp() (dir, problem string) {
	places := []string{filepath.Join(os.TempDir(), "parley-"+strconv.Itoa(os.Getuid()))}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		places = append(places, filepath.Join(dir, "parley"))
	}
	if dir := cfg.ConfigDir(); dir != "" {
		places = append(places, filepath.Join(dir, "parley-temp"))
	}
	for _, place := range places {
		dir, err := privateDir(place)
		if err == nil {
			return dir, problem
		}
		if problem == "" {
			problem = fmt.Sprintf("%s is not used for temporary files: %v", place, err)
		}
	}
	return "", problem
}

// privateDir creates a directory that nobody else can change or read, in an existing
// one. It returns its path without symbolic links.
func privateDir(path string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	path = filepath.Join(parent, filepath.Base(path))
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("it is not a directory")
	}
	above, err := os.Stat(parent)
	if err != nil {
		return "", err
	}
	return path, ownedAlone(path, info, above)
}
