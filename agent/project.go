package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// loadProject reads the files of the user and the project, from the same sources as the settings.
func (set *setup) loadProject() *project.Context {
	var sources []string
	for name, ok := range map[string]bool{project.User: set.prefs().Sources().User, project.Project: set.prefs().Sources().Project, project.Local: set.prefs().Sources().Local} {
		if ok {
			sources = append(sources, name)
		}
	}
	dirs := set.absolute(append(slices.Clone(set.flags.PluginDirs), set.flags.PluginDirsNoMCP...))
	ids := set.installedPlugins()
	dirs = append(dirs, slices.Sorted(maps.Keys(ids))...)
	return project.Load(project.Options{
		Cwd: set.cfg.Cwd, ConfigRoot: set.flags.ProjectRoot, ConfigDir: set.cfg.ConfigDir(), Home: set.cfg.Home, Sources: sources,
		PluginDirs: dirs, PluginIDs: ids, MemoryDir: set.memoryDir(), NoServers: set.absolute(set.flags.PluginDirsNoMCP), Trusted: set.trustsFile, Hidden: set.hides(), Excluded: set.prefs().List("claudeMdExcludes"),
	})
}

// memoryDir returns the directory of the model's notes about the project; it is empty if it keeps none.
// It keeps notes if the user has enabled that, or if the directory exists and the user has not disabled
// it.
func (set *setup) memoryDir() string {
	prefs := set.prefs()
	raw, _ := prefs.Get("autoMemoryEnabled")
	off := set.vars["CLAUDE_CODE_DISABLE_AUTO_MEMORY"]
	if set.cfg.ConfigDir() == "" || set.flags.Bare || string(raw) == "false" || off != "" && off != "0" && !strings.EqualFold(off, "false") {
		return ""
	}
	dir := prefs.String("autoMemoryDirectory")
	if rest, ok := strings.CutPrefix(dir, "~/"); ok && set.cfg.Home != "" {
		dir = filepath.Join(set.cfg.Home, rest)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(set.cfg.ConfigDir(), "projects", session.ProjectKey(set.cfg.Cwd), "memory")
	}
	if string(raw) != "true" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !prefs.Sources().User {
			return ""
		}
	}
	return filepath.Clean(dir)
}

// hides returns a function that reports whether a rule denies reading a file. It uses the rules of the
// conversation, or the initial rules before it starts.
func (set *setup) hides() func(path string, target *tool.Target) bool {
	begin := sync.OnceValue(func() *policy.Policy {
		rules, err := set.rules()
		if err != nil { // no conversation starts then
			return policy.New()
		}
		return rules
	})
	return func(path string, target *tool.Target) bool {
		if env := set.env; env != nil && env.Hidden != nil {
			return env.Hidden(path, target)
		}
		return begin().Hides(&policy.Request{Roots: set.roots(), Home: set.cfg.Home}, path, target)
	}
}

// skillTool reports whether the model has the Skill tool.
func (set *setup) skillTool() bool {
	return !set.flags.NoSlashCommands && set.offersTool("Skill")
}

// newLog starts another session instead of the running one.
func (set *setup) newLog(id string) (session.Log, error) {
	store := set.openStore()
	if store == nil {
		return nil, errors.New("there is no config directory to save it in")
	}
	log, err := session.Create(context.Background(), store, set.meta(id))
	if err == nil {
		set.closers = append(set.closers, log.Close)
		log = set.opened(log)
	}
	return log, err
}

// git runs git to read the state of the repository, without configuration of the user or the system.
func (set *setup) git(ctx context.Context, dir string, args []string) ([]byte, error) {
	path, err := set.findProgram("git")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C", "PATH=" + filepath.Dir(path)}
	if root := set.vars["SYSTEMROOT"]; root != "" {
		cmd.Env = append(cmd.Env, "SYSTEMROOT="+root)
	}
	cmd.WaitDelay = time.Second
	out := &cappedBuffer{left: 256 << 10}
	cmd.Stdout = out
	if err := set.runWalled(cmd); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// runWalled runs a command of our own, behind the read wall if there is one.
func (set *setup) runWalled(cmd *exec.Cmd) error {
	walled, err := set.wall.Confine(cmd, sandbox.View{Roots: []string{cmd.Dir}})
	if errors.Is(err, sandbox.ErrNoWall) {
		return cmd.Run()
	}
	if err != nil {
		return err
	}
	err = cmd.Start()
	walled.Started(err)
	if err == nil {
		err = cmd.Wait()
	}
	return errors.Join(walled.Err(), err)
}

// A cappedBuffer keeps the beginning of the data written to it.
type cappedBuffer struct {
	bytes.Buffer
	left int
}

func (b *cappedBuffer) Write(p []byte) (int, error) {
	n := min(b.left, len(p))
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}

// findProgram finds a program in the PATH of the environment. A project must not choose which one is
// used.
func (set *setup) findProgram(name string) (string, error) {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	for _, dir := range filepath.SplitList(set.vars["PATH"]) {
		if !filepath.IsAbs(dir) || files.Within(set.cfg.Cwd, filepath.Clean(dir)) {
			continue
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on the PATH", name)
}

// styleNames lists the output styles.
func (s *server) styleNames() []string {
	names := []string{"default"}
	if p := s.conv.Project(); p != nil {
		for _, st := range p.Styles {
			names = append(names, st.Name)
		}
	}
	return names
}

// reload reads the files of the user and the project again. It is called inside of
// [engine.Conversation.Do].
func (s *server) reload() error {
	before := len(s.plugins())
	s.conv.SetProject(s.set.loadProject())
	if s.hasHook(wire.EventConfigChange) {
		go func() { // do not wait for hooks: the conversation waits for reload
			v := s.conv.Hooks(context.Background(), &wire.ConfigChangeInput{Source: "skills"}, "skills")
			s.conv.Do(func() { s.conv.EmitHookMessages(v) })
		}()
	}
	if before == 0 && len(s.plugins()) == 0 {
		return nil
	}
	commands, err := s.commandHooks(s.set.prefs(), s.set.held...)
	if err != nil {
		return err
	}
	s.useHooks(commands)
	s.connectPlugins()
	return s.conv.Change(engine.Changes{Agents: s.set.pluginAgents(s.conv.Project())})
}

// addPlugins adds the plugins that a host names in initialize.
func (s *server) addPlugins(list []*wire.PluginConfig) {
	for _, p := range list {
		if p == nil || p.Type != "" && p.Type != "local" || p.Path == "" {
			continue
		}
		to := &s.set.flags.PluginDirs
		if p.SkipMCPDiscovery {
			to = &s.set.flags.PluginDirsNoMCP
		}
		if !slices.Contains(*to, p.Path) {
			*to = append(slices.Clone(*to), p.Path)
		}
	}
}

// trustsFile reports whether a file of the project may allow and run something.
func (set *setup) trustsFile(path string, content []byte) bool {
	rel, err := filepath.Rel(set.projectRoot(), path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return false // trust does not cover the directories above
	}
	return set.prefs().TrustsFile(path, content)
}
