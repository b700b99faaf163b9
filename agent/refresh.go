package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/wire"
)

// refresh checks whether files that the conversation depends on have changed: those of its
// settings, and those that hooks watch. It is called before a prompt is handled and before a
// call is decided, from goroutines that may wait for hooks but do not own the conversation.
// One at a time checks; the others use its result.
func (s *server) refresh(ctx context.Context) {
	select {
	case s.refreshing <- struct{}{}:
		defer func() { <-s.refreshing }()
	case <-ctx.Done():
		return
	}
	if changed := s.set.prefs().Changed(); len(changed) > 0 {
		s.settingsChanged(ctx, changed)
	}
	s.filesChanged(ctx)
}

// settingsChanged reads the settings again. Hooks run for each file first, and can block its
// change, except for managed settings.
func (s *server) settingsChanged(ctx context.Context, changed []settings.File) {
	var keep []settings.File
	for _, f := range changed {
		if own, ok := s.set.written.Load(f.File); ok && f.Same(own.(settings.File)) {
			continue // hooks ran when it was written
		}
		in := &wire.ConfigChangeInput{HookBase: wire.HookBase{Cwd: s.set.cfg.Cwd}, Source: configSource(f.Layer), FilePath: f.File}
		v := s.conv.Hooks(ctx, in, in.Source)
		_, blocked := v.Blocked()
		v.Objections = nil // they concern the change and are not for the model
		s.conv.Do(func() { s.conv.EmitHookMessages(v) })
		if blocked && f.Layer != settings.Managed {
			keep = append(keep, f)
			s.warn("%s has changed, but a hook blocked the change. Its earlier content applies.", f.File)
		}
	}
	if err := s.reread(keep); err != nil {
		s.reread(changed) // keep the previous settings
	}
}

// reread reads the settings again, except for the files in keep.
func (s *server) reread(keep []settings.File) (err error) {
	next, errs := s.set.prefs().Reload(keep)
	s.conv.Do(func() {
		var adopt func()
		if adopt, err = s.prepareSettings(next); err == nil {
			adopt()
		}
	})
	if err != nil {
		errs = append(errs, err)
	}
	for _, err := range errs {
		s.warn("The earlier settings stay in force: %v", err)
	}
	return err
}

func (s *server) warn(format string, args ...any) {
	s.sendMessage(&wire.Informational{Content: fmt.Sprintf(format, args...), Level: "warning"})
}

// configSource returns the name of a layer for ConfigChange hooks.
func configSource(l settings.Layer) string {
	if l == settings.Managed {
		return "policy_settings"
	}
	return string(l) + "_settings"
}

// prepareSettings prepares to apply settings: rules, hooks, directories, the environment of commands,
// and whether the mode bypassPermissions is allowed. A project cannot remove deny rules and
// hooks that it had in this conversation. prepareSettings and the function that it returns are called
// inside of one [engine.Conversation.Do].
func (s *server) prepareSettings(next *settings.Settings) (func(), error) {
	set, old := s.set, s.set.prefs()
	rules, err := fileRules(next)
	if err != nil {
		return nil, err
	}
	guards := heldHooks(set.held, slices.Concat(old.Hooks(), settings.Guards(old)), slices.Concat(next.Hooks(), settings.Guards(next)))
	commands, err := s.commandHooks(next, guards...)
	if err != nil {
		return nil, err
	}
	return func() {
		before := set.commandEnv()
		set.applySettings(next)
		set.held = guards
		set.lint()
		s.useHooks(commands)
		s.conv.ChangeEnviron(changedEnv(before, set.commandEnv()))
		s.conv.SetRules(engine.Rules{
			Rules: rules, Keep: func(r policy.Rule) bool { return staysWith(r, next) },
			AllowBypass: set.bypassAllowed(), FixedAllows: next.ManagedRulesOnly(), InitExtra: set.initExtra(),
		})
		now, begun := next.Directories(), set.absolute(set.flags.AddDirs)
		gone := slices.DeleteFunc(old.Directories(), func(d string) bool { return slices.Contains(now, d) || slices.Contains(begun, d) })
		s.conv.Apply(&wire.PermissionUpdate{Type: wire.UpdateRemoveDirectories, Directories: gone})
		s.conv.Apply(&wire.PermissionUpdate{Type: wire.UpdateAddDirectories, Directories: now})
	}, nil
}

// staysWith reports whether a rule stays when settings are read again: a rule that is in no
// file, such as a built-in one, and a restriction of a project.
func staysWith(r policy.Rule, next *settings.Settings) bool {
	if r.Behavior == wire.BehaviorAllow && next.ManagedRulesOnly() && r.Source.Layer != policy.LayerManaged {
		return false
	}
	switch r.Source.Layer {
	case policy.LayerProject, policy.LayerLocal:
		return r.Source.File == "" || r.Behavior != wire.BehaviorAllow
	case policy.LayerUser, policy.LayerFlag, policy.LayerManaged:
		return r.Source.File == "" || r.Source.File == policy.BuiltIn
	}
	return true
}

// heldHooks returns the hooks of a project that can deny something and were removed from its
// settings, or changed: they remain in effect until the conversation ends.
func heldHooks(held, old, next []settings.Hook) []settings.Hook {
	same := func(a settings.Hook) func(settings.Hook) bool {
		return func(b settings.Hook) bool {
			return a.Event == b.Event && a.Matcher == b.Matcher && a.Command == b.Command && slices.Equal(a.Args, b.Args) && a.Shell == b.Shell &&
				a.If == b.If && a.OnFailure == b.OnFailure && a.Async == b.Async && (a.Inactive || !b.Inactive)
		}
	}
	var all []settings.Hook
	for _, h := range append(slices.Clone(held), old...) {
		ofProject := h.Layer == settings.Project || h.Layer == settings.Local
		if ofProject && settings.Decides(h.Event) && !slices.ContainsFunc(next, same(h)) && !slices.ContainsFunc(all, same(h)) {
			all = append(all, h)
		}
	}
	return all
}

// changedEnv returns the variables of an environment that were added or changed, and nil for
// those that were removed.
func changedEnv(before, after []string) map[string]*string {
	read := func(environ []string) map[string]string {
		vars := map[string]string{}
		for _, kv := range environ {
			k, v, _ := strings.Cut(kv, "=")
			vars[k] = v
		}
		return vars
	}
	old, now, changes := read(before), read(after), map[string]*string{}
	for k := range old {
		if _, ok := now[k]; !ok {
			changes[k] = nil
		}
	}
	for k, v := range now {
		if was, ok := old[k]; !ok || was != v {
			changes[k] = &v
		}
	}
	return changes
}

// saveRules writes a change of the rules to a settings file, and records the state of the file
// afterwards, so that it does not count as a change by others.
func (set *setup) saveRules(u *wire.PermissionUpdate) (string, error) {
	path, err := set.prefs().Keep(u)
	if path != "" {
		set.written.Store(path, settings.Look(path))
	}
	return path, err
}

// A watch holds the files that hooks watch.
type watch struct {
	mu    sync.Mutex
	asked []string                 // requested by hooks with watchPaths
	seen  map[string]settings.File // their last state
}

// maxWatched is the maximum number of watched files.
const maxWatched = 1000

// setWatchedFiles records the files that hooks watch from now on. Those of one event replace those
// of the previous one.
func (s *server) setWatchedFiles(answers []hook.Answer) {
	var paths []string
	asked := false
	for _, a := range answers {
		if a.Output == nil {
			continue
		}
		var list []string
		switch o := a.Output.HookSpecificOutput.(type) {
		case *wire.SessionStartOutput:
			list = o.WatchPaths
		case *wire.CwdChangedOutput:
			list = o.WatchPaths
		case *wire.FileChangedOutput:
			list = o.WatchPaths
		}
		if list != nil {
			asked, paths = true, append(paths, list...)
		}
	}
	if !asked {
		return
	}
	s.watch.mu.Lock()
	s.watch.asked = paths
	s.watch.mu.Unlock()
	s.watched(true)
}

// watched checks the files that hooks watch, and returns those that have changed, with the
// kind of change. With fresh it only checks files that it has not seen yet.
func (s *server) watched(fresh bool) (changed []settings.File, events []string) {
	paths := s.hookFiles()
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	paths = append(paths, w.asked...)
	if len(paths) == 0 {
		w.seen = nil
		return nil, nil
	}
	now := map[string]settings.File{}
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.set.cfg.Cwd, path)
		}
		if path = filepath.Clean(path); len(now) == maxWatched {
			break
		}
		if _, ok := now[path]; ok {
			continue
		}
		was, known := w.seen[path]
		if fresh && known {
			now[path] = was
			continue
		}
		f := settings.Look(path)
		now[path] = f
		if known && !f.Same(was) {
			changed, events = append(changed, f), append(events, f.Event(was))
		}
	}
	w.seen = now
	return changed, events
}

// hookFiles returns the files that the matchers of FileChanged hooks name.
func (s *server) hookFiles() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	matchers := s.runner.Matchers(wire.EventFileChanged)
	for _, m := range s.hooks[wire.EventFileChanged] {
		matchers = append(matchers, m.text)
	}
	var names []string
	for _, m := range matchers {
		for _, name := range strings.Split(m, "|") {
			if name = strings.TrimSpace(name); name != "" && name != "*" {
				names = append(names, name)
			}
		}
	}
	return names
}

// filesChanged runs hooks for changed files that they watch.
func (s *server) filesChanged(ctx context.Context) {
	changed, events := s.watched(false)
	for i, f := range changed {
		in := &wire.FileChangedInput{HookBase: wire.HookBase{Cwd: s.set.cfg.Cwd}, FilePath: f.File, Change: events[i]}
		v := s.conv.Hooks(ctx, in, filepath.Base(f.File))
		s.conv.Do(func() { s.conv.EmitHookMessages(v) })
	}
}
