package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/project/market"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/terminal"
)

const pluginText = `
A plugin is a directory with skills, commands, agents, hooks and MCP servers. A marketplace
lists plugins: a directory, owner/name on GitHub, or any git repository (https://, ssh://,
file:// or user@host:path, with an optional #BRANCH). The files are those of the official
command: both programs share marketplaces and plugins.

  parley plugin marketplace add ./our-plugins
  parley plugin install team@our-plugins
  parley plugin list
  parley plugin disable team@our-plugins
  parley plugin enable team@our-plugins
  parley plugin remove team@our-plugins
  parley plugin validate ./our-plugins
  parley plugin marketplace list
  parley plugin marketplace remove our-plugins

A plugin runs with your rights: its hooks and MCP servers start by themselves. "install" copies
it and lists its components. After a change in the marketplace, install the plugin again. Git
runs without hooks and without your configuration. A project cannot enable a plugin:
"enabledPlugins" has an effect only in your own settings.`

// pluginCommand implements parley plugin.
func pluginCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "plugin", "install NAME[@MARKETPLACE] | list | enable ID | disable ID | remove ID | validate DIR | marketplace add|list|remove", pluginText)
	asJSON := fs.Bool("json", false, "list: print JSON")
	from := fs.String("marketplace", "", "install: add the marketplace at this `SOURCE` first")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		fs.help()
		return nil
	}
	if err := checkVerb("plugin", words, map[string]string{"install": " NAME[@MARKETPLACE]", "list": "", "enable": " ID", "disable": " ID",
		"remove": " ID", "uninstall": " ID", "validate": " DIR", "marketplace": " …"}); err != nil {
		return err
	}
	verb, words := words[0], words[1:]
	if *asJSON && verb != "list" || *from != "" && verb != "install" {
		return usagef("--json is for parley plugin list, --marketplace for parley plugin install")
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	if cfg.ConfigDir() == "" {
		return errors.New("no home directory to save plugins in; set HOME or CLAUDE_CONFIG_DIR")
	}
	c := &plugins{p, cfg, &market.Store{Dir: filepath.Join(cfg.ConfigDir(), "plugins"), Environ: cfg.Environ}}
	switch verb {
	case "install":
		return c.install(ctx, words[0], *from)
	case "list":
		return c.list(*asJSON)
	case "enable", "disable":
		id, err := c.installedID(words[0])
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "The plugin %s is %sd.\n", id, verb)
		return c.enable(id, json.RawMessage(fmt.Sprint(verb == "enable")))
	case "validate":
		return c.validate(words[0])
	case "marketplace":
		return c.market(ctx, words)
	}
	id, err := c.installedID(words[0])
	if err == nil {
		err = c.store.Remove(id)
	}
	if err == nil {
		err = c.enable(id, nil)
	}
	if err == nil {
		fmt.Fprintf(p.stdout, "Removed the plugin %s.\n", id)
	}
	return err
}

// checkVerb checks the subcommand words[0] and the number of its arguments. A verb maps to
// its arguments, each after a space; " …" is any number.
func checkVerb(command string, words []string, verbs map[string]string) error {
	args, ok := verbs[words[0]]
	switch {
	case !ok:
		return unknownVerb(words[0], slices.Sorted(maps.Keys(verbs))...)
	case args != " …" && strings.Count(args, " ") != len(words)-1:
		return usagef("usage: parley %s %s%s", command, words[0], args)
	}
	return nil
}

// plugins holds the state of parley plugin.
type plugins struct {
	p     *process
	cfg   agent.Config
	store *market.Store
}

// enable records whether a plugin is enabled; nil removes the record.
func (c *plugins) enable(id string, on json.RawMessage) error {
	_, err := settings.SetServer(filepath.Join(c.cfg.ConfigDir(), "settings.json"), []string{"enabledPlugins"}, id, on)
	return err
}

// installedID returns the id of an installed plugin, NAME@MARKETPLACE, for an id or a name.
func (c *plugins) installedID(word string) (string, error) {
	all, err := c.store.Installed()
	if err != nil {
		return "", err
	}
	ids := slices.Sorted(maps.Keys(all))
	var found, names []string
	for _, id := range ids {
		name, _, _ := strings.Cut(id, "@")
		if names = append(names, name); id == word || name == word {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("the plugin %s is not installed%s \"parley plugin list\" lists those that are", terminal.Visible(word), didYouMean(word, append(names, ids...)))
	}
	return "", fmt.Errorf("several plugins are named %s: %s", word, strings.Join(found, ", "))
}

func (c *plugins) install(ctx context.Context, word, from string) error {
	name, marketplace, _ := strings.Cut(word, "@")
	if from != "" {
		added, err := c.add(ctx, from)
		if err != nil {
			return err
		}
		if marketplace != "" && marketplace != added {
			return usagef("the marketplace at %s is named %s, not %s", from, added, marketplace)
		}
		marketplace = added
	}
	marketplace, err := c.store.Find(name, marketplace)
	if err != nil {
		return errors.New(terminal.Visible(err.Error()))
	}
	var brings []string
	in, err := c.store.Install(ctx, name, marketplace, func(dir string) error {
		info, problems := inspect(dir, name)
		if len(problems) > 0 {
			return fmt.Errorf("the plugin %s is malformed:\n  %s", name, strings.Join(problems, "\n  "))
		}
		if info.Name != name {
			return fmt.Errorf("the marketplace calls the plugin %s, and its plugin.json %s", name, info.Name)
		}
		brings = contents(info)
		return nil
	})
	if err != nil {
		return errors.New(terminal.Visible(err.Error()))
	}
	id := name + "@" + marketplace
	if err := c.enable(id, json.RawMessage("true")); err != nil {
		return err
	}
	fmt.Fprintf(c.p.stdout, "Installed the plugin %s, version %s, in %s.\n", id, in.Version, terminal.Visible(in.InstallPath))
	for _, b := range brings {
		fmt.Fprintf(c.p.stdout, "  %s\n", terminal.Visible(b))
	}
	return nil
}

// inspect reads the whole plugin in a directory, and returns its problems. name is used if the
// plugin has no manifest.
func inspect(dir, name string) (*project.PluginInfo, []string) {
	opts := project.Options{Cwd: dir, PluginDirs: []string{dir}}
	if name != "" {
		opts.PluginIDs = map[string]string{dir: name + "@"}
	}
	c := project.Load(opts)
	var problems []string
	add := func(path string, err any) {
		if rel, e := filepath.Rel(dir, path); e == nil && filepath.IsLocal(rel) {
			path = rel
		}
		problems = append(problems, fmt.Sprintf("%s: %v", path, err))
	}
	info := c.Plugins[0]
	for _, pr := range c.Problems {
		if manifest := filepath.Join(dir, ".claude-plugin", "plugin.json"); !pr.Expected && (info.Err == nil || pr.Path != dir) && (info.Ignored == nil || pr.Path != manifest) {
			add(pr.Path, pr.Reason)
		}
	}
	if info.Err != nil {
		add(dir, info.Err)
		return info, problems
	}
	if info.Agents != "" {
		_, errs := agents.ReadDir(info.Agents, agents.Plugin, func(string, []byte) bool { return true })
		for _, err := range errs {
			add(info.Agents, err)
		}
	}
	if info.Hooks != "" {
		text, err := os.ReadFile(info.Hooks)
		if err == nil {
			_, err = new(settings.Settings).HooksIn(info.Hooks, text)
		}
		if err != nil {
			add(info.Hooks, err)
		}
	}
	if info.MCP != "" {
		if text, err := os.ReadFile(info.MCP); err != nil {
			add(info.MCP, err)
		} else if !json.Valid(text) {
			add(info.MCP, "it is not valid JSON")
		}
	}
	return info, problems
}

// contents lists the parts of a plugin that run by themselves, and the directories of the rest.
func contents(info *project.PluginInfo) (all []string) {
	if info.Description != "" {
		all = append(all, info.Description)
	}
	if info.Ignored != nil {
		all = append(all, "without effect in this version: "+strings.Join(info.Ignored, ", "))
	}
	if text, err := os.ReadFile(info.Hooks); err == nil {
		hooks, _ := new(settings.Settings).HooksIn(info.Hooks, text)
		for _, h := range hooks {
			all = append(all, fmt.Sprintf("hook %s %s: %s", h.Event, h.Matcher, h.Command))
		}
	}
	if text, err := os.ReadFile(info.MCP); err == nil {
		var doc map[string]json.RawMessage
		_ = json.Unmarshal(text, &doc)
		if inner := doc["mcpServers"]; inner != nil {
			doc = nil
			_ = json.Unmarshal(inner, &doc)
		}
		for _, name := range slices.Sorted(maps.Keys(doc)) {
			all = append(all, fmt.Sprintf("MCP server %s: %s", name, doc[name]))
		}
	}
	for _, kind := range []string{"skills", "commands", "agents", "output-styles"} {
		if entries, err := os.ReadDir(filepath.Join(info.Dir, kind)); err == nil && len(entries) > 0 {
			all = append(all, fmt.Sprintf("%s: %d", kind, len(entries)))
		}
	}
	return all
}

func (c *plugins) list(asJSON bool) error {
	all, err := c.store.Installed()
	if err != nil {
		return err
	}
	prefs, err := settings.Load(settings.Options{UserDir: c.cfg.ConfigDir(), Sources: settings.Sources{User: true}})
	if err != nil {
		return err
	}
	type row struct {
		ID          string `json:"id"`
		Version     string `json:"version"`
		Scope       string `json:"scope"`
		Enabled     bool   `json:"enabled"`
		InstallPath string `json:"installPath"`
		InstalledAt string `json:"installedAt"`
		LastUpdated string `json:"lastUpdated"`
	}
	rows := []row{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		in := all[id]
		raw, _ := prefs.Get("enabledPlugins", id)
		rows = append(rows, row{id, in.Version, in.Scope, raw != nil && string(raw) != "false", in.InstallPath, in.InstalledAt, in.LastUpdated})
	}
	if asJSON {
		text, err := json.MarshalIndent(rows, "", "  ")
		if err == nil {
			_, err = fmt.Fprintln(c.p.stdout, string(text))
		}
		return err
	}
	for _, r := range rows {
		state := "enabled"
		if !r.Enabled {
			state = "disabled"
		}
		fmt.Fprintf(c.p.stdout, "%s %s [%s]\n", terminal.Visible(r.ID), terminal.Visible(r.Version), state)
	}
	if len(rows) == 0 {
		fmt.Fprintln(c.p.stdout, "No plugin is installed. parley plugin install installs one.")
	}
	return nil
}

func (c *plugins) validate(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if filepath.Base(filepath.Dir(dir)) == ".claude-plugin" { // the manifest itself
		dir = filepath.Dir(filepath.Dir(dir))
	}
	list := []string{dir}
	if _, err := os.Stat(filepath.Join(dir, ".claude-plugin", "marketplace.json")); err == nil {
		m, err := market.ReadManifest(dir)
		if err != nil {
			return errors.New(terminal.Visible(err.Error()))
		}
		list = nil
		for _, e := range m.Plugins {
			var path string
			if json.Unmarshal(e.Source, &path) == nil {
				list = append(list, filepath.Join(dir, m.Metadata.PluginRoot, filepath.FromSlash(path)))
			}
		}
		fmt.Fprintf(c.p.stdout, "Plugins in the marketplace %s: %d\n", m.Name, len(m.Plugins))
	} else if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist; correct the path", terminal.Visible(dir))
	}
	var wrong []string
	for _, dir := range list {
		info, problems := inspect(dir, "")
		if len(problems) == 0 && len(contents(info)) == 0 {
			problems = []string{"it has no skills, commands, agents, hooks or MCP servers, and no description in .claude-plugin/plugin.json"}
		}
		for _, text := range problems {
			wrong = append(wrong, filepath.Base(dir)+": "+text)
		}
		if len(problems) == 0 {
			fmt.Fprintf(c.p.stdout, "The plugin %s is valid.\n", info.Name)
			for _, b := range contents(info) {
				fmt.Fprintf(c.p.stdout, "  %s\n", terminal.Visible(b))
			}
		}
	}
	if wrong != nil {
		return errors.New(terminal.Visible(strings.Join(wrong, "\n")))
	}
	return nil
}

// add adds a marketplace, also to the user's settings.
func (c *plugins) add(ctx context.Context, where string) (string, error) {
	src, err := market.ParseSource(where, c.cfg.Cwd)
	if err != nil {
		return "", &usageError{terminal.Visible(err.Error())}
	}
	name, err := c.store.Add(ctx, src)
	if err != nil {
		return "", errors.New(terminal.Visible(err.Error()))
	}
	raw, err := json.Marshal(map[string]market.Source{"source": src})
	if err == nil {
		_, err = settings.SetServer(filepath.Join(c.cfg.ConfigDir(), "settings.json"), []string{"extraKnownMarketplaces"}, name, raw)
	}
	return name, err
}

func (c *plugins) market(ctx context.Context, words []string) error {
	switch {
	case len(words) == 2 && words[0] == "add":
		name, err := c.add(ctx, words[1])
		if err == nil {
			fmt.Fprintf(c.p.stdout, "Added the marketplace %s.\n", name)
		}
		return err
	case len(words) == 2 && (words[0] == "remove" || words[0] == "rm"):
		err := c.store.RemoveMarket(words[1])
		if err == nil {
			_, err = settings.SetServer(filepath.Join(c.cfg.ConfigDir(), "settings.json"), []string{"extraKnownMarketplaces"}, words[1], nil)
		}
		if err == nil {
			fmt.Fprintf(c.p.stdout, "Removed the marketplace %s.\n", terminal.Visible(words[1]))
		}
		return err
	case len(words) == 1 && words[0] == "list":
		all, err := c.store.Markets()
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			m := all[name]
			fmt.Fprintf(c.p.stdout, "%s: %s\n", terminal.Visible(name), terminal.Visible(m.Source.String()))
			if list, err := market.ReadManifest(m.InstallLocation); err != nil {
				fmt.Fprintf(c.p.stdout, "  %s\n", terminal.Visible(err.Error()))
			} else {
				for _, e := range list.Plugins {
					fmt.Fprintf(c.p.stdout, "  %s\n", terminal.Visible(strings.TrimSpace(e.Name+"  "+e.Description)))
				}
			}
		}
		if len(all) == 0 {
			fmt.Fprintln(c.p.stdout, "No marketplace was added. \"parley plugin marketplace add\" adds one.")
		}
		return nil
	}
	return usagef("usage: parley plugin marketplace add SOURCE, list, or remove NAME")
}
