package agent

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
)

const sandboxIgnores = "these settings of the sandbox have no effect"

// startSandbox creates the sandbox, if the settings enable it.
func (set *setup) startSandbox() error {
	raw, _ := set.prefs().Get("sandbox")
	settings, err := sandbox.Parse(raw)
	if err != nil {
		return fmt.Errorf("Error: %w", err)
	}
	if !settings.Enabled {
		if names := settings.Misspelled(); len(names) > 0 {
			set.notices = append(set.notices, fmt.Sprintf("%s: %s", sandboxIgnores, strings.Join(names, ", ")))
		}
		return nil
	}
	opts := sandbox.Options{Settings: settings, Dir: set.cfg.Cwd, Roots: set.roots(), Home: set.cfg.Home, Path: set.vars["PATH"]}
	for _, dir := range []string{"/tmp", set.vars["TMPDIR"]} {
		// A directory that contains the home directory is not used for temporary files.
		if filepath.IsAbs(dir) && (set.cfg.Home == "" || !strings.HasPrefix(set.cfg.Home+"/", strings.TrimSuffix(filepath.Clean(dir), "/")+"/")) && !slices.Contains(opts.Temp, dir) {
			opts.Temp = append(opts.Temp, dir)
		}
	}
	// Commands read the output files of tools; only the agent writes them.
	if set.temp != "" {
		opts.Protect = append(opts.Protect, set.temp)
	}
	opts.Hide = set.cfg.secrets()
	if set.sandbox, err = sandbox.New(opts); err != nil {
		return fmt.Errorf("Error: %w", err)
	}
	set.closers = append(set.closers, func() error { set.sandbox.Close(); return nil })
	return nil
}

// makeWall creates the wall for commands that nobody approved. It is probed when the
// first tool call begins that is not read-only.
func (set *setup) makeWall() {
	opts := sandbox.WallOptions{Home: set.cfg.Home, Path: set.vars["PATH"], Hide: set.cfg.secrets(),
		Expected: set.offersTool("Bash") && (set.cfg.Tools == nil || slices.ContainsFunc(set.cfg.Tools, func(t tool.Tool) bool { return t.Spec().Name == "Bash" }))}
	if file := set.vars["GIT_CONFIG_GLOBAL"]; file != "" {
		opts.GitConfig = append(opts.GitConfig, file)
	}
	if dir := set.vars["XDG_CONFIG_HOME"]; dir != "" {
		opts.GitConfig = append(opts.GitConfig, filepath.Join(dir, "git", "config"))
		opts.Read = append(opts.Read, filepath.Join(dir, "git", "ignore"), filepath.Join(dir, "git", "attributes"))
	}
	set.wall = sandbox.NewWall(opts)
	set.closers = append(set.closers, func() error { set.wall.Close(); return nil })
}

// secrets returns the files of the user that contain credentials, ours and those of the
// official command, and the directory of the hub with its socket, over which permission
// requests are answered, whether they exist or not.
func (cfg *Config) secrets() (files []string) {
	if home := cfg.Home; home != "" {
		files = append(files, filepath.Join(home, ".config", "claude", "config.json"), filepath.Join(home, ".claude", ".credentials.json"))
	}
	if dir := cfg.ConfigDir(); dir != "" {
		files = append(files, filepath.Join(dir, ".credentials.json"), cfg.Logins().File, filepath.Join(dir, "hub"))
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// warn prints once which settings are not enforced.
func (set *setup) warn(stderr io.Writer) {
	for _, n := range set.notices {
		fmt.Fprintf(stderr, "Warning: %s\n", n)
	}
	r := set.sandbox.Report()
	for _, m := range r.Missing {
		fmt.Fprintf(stderr, "Warning: the sandbox (%s) cannot enforce %s\n", r.Kind, m)
	}
	if len(r.Ignored) > 0 {
		fmt.Fprintf(stderr, "Warning: %s: %s\n", sandboxIgnores, strings.Join(r.Ignored, ", "))
	}
}
