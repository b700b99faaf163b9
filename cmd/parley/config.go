package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/terminal"
)

const configText = `
Reads and changes your settings, in settings.json of your config directory. Dots in a key
lead into objects. A value is JSON; a string needs no quotes.

  parley config list
  parley config get permissions.defaultMode
  parley config set model sonnet
  parley config set autoCompactEnabled false
  parley config set permissions.deny '["Read(.env)"]'
  parley config unset model

"set" refuses unknown keys and values of the wrong type, and keeps the rest of the file.
"parley help settings" explains the settings.`

// configCommand implements parley config.
func configCommand(_ context.Context, p *process, args []string) error {
	fs := newFlags(p, "config", "list | get KEY | set KEY VALUE | unset KEY", configText)
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		fs.help()
		return nil
	}
	if err := checkVerb("config", words, map[string]string{"list": "", "get": " KEY", "set": " KEY VALUE", "unset": " KEY"}); err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	if cfg.ConfigDir() == "" {
		return errors.New("no home directory to save settings in; set HOME or CLAUDE_CONFIG_DIR")
	}
	prefs, err := settings.Load(settings.Options{UserDir: cfg.ConfigDir(), Sources: settings.Sources{User: true}})
	if err != nil {
		return errors.New(terminal.Visible(err.Error()))
	}
	if err := os.MkdirAll(cfg.ConfigDir(), 0o700); err != nil {
		return err
	}
	file := filepath.Join(cfg.ConfigDir(), "settings.json")
	var keys []string
	if len(words) > 1 {
		if keys, err = settingPath(words[1]); err != nil {
			return err
		}
	}
	switch words[0] {
	case "list":
		return listSettings(p, prefs)
	case "get":
		raw, _ := prefs.Get(keys...)
		if raw == nil {
			return fmt.Errorf("%s is not set in %s; \"parley config list\" lists the settings that are", words[1], file)
		}
		_, err := fmt.Fprintln(p.stdout, settingText(raw))
		return err
	case "unset":
		had, err := settings.SetServer(file, keys[:len(keys)-1], keys[len(keys)-1], nil)
		if err == nil && !had {
			err = fmt.Errorf("%s is not set in %s; \"parley config list\" lists the settings that are", words[1], file)
		}
		return err
	}
	raw, err := settingValue(keys, words[2])
	if err != nil {
		return err
	}
	_, err = settings.SetServer(file, keys[:len(keys)-1], keys[len(keys)-1], raw)
	return err
}

// settingPath splits a key such as permissions.defaultMode into names.
func settingPath(key string) ([]string, error) {
	keys := strings.Split(key, ".")
	if len(keys) > 2 && keys[0] != "sandbox" || len(keys) > 1 && slices.Contains([]string{"env", "enabledPlugins", "extraKnownMarketplaces"}, keys[0]) {
		keys = strings.SplitN(key, ".", 2) // their members may have any name
	}
	if slices.Contains(keys, "") {
		return nil, usagef("%q is not the name of a setting", key)
	}
	if names := settings.Names(keys[:len(keys)-1]...); names != nil && !slices.Contains(names, keys[len(keys)-1]) {
		return nil, usagef("unknown setting %q%s \"parley help settings\" lists all", key, didYouMean(keys[len(keys)-1], names))
	}
	return keys, nil
}

// settingValue parses a value, and rejects an invalid one.
func settingValue(keys []string, text string) (json.RawMessage, error) {
	check := func(raw json.RawMessage) error {
		for _, k := range slices.Backward(keys) {
			raw, _ = json.Marshal(map[string]json.RawMessage{k: raw})
		}
		s, err := settings.Load(settings.Options{Flag: string(raw)})
		if err == nil {
			if box, _ := s.Get("sandbox"); box != nil {
				_, err = sandbox.Parse(box)
			}
		}
		return err
	}
	word, _ := json.Marshal(text)
	var err error
	if json.Valid([]byte(text)) {
		if err = check(json.RawMessage(text)); err == nil {
			return json.RawMessage(text), settings.CheckChoice(strings.Join(keys, "."), json.RawMessage(text))
		}
	}
	if wordErr := check(word); wordErr == nil {
		return word, settings.CheckChoice(strings.Join(keys, "."), word)
	} else if err == nil {
		err = wordErr
	}
	var wrong *settings.Error
	if errors.As(err, &wrong) {
		return nil, usagef("%s. %s", terminal.Visible(wrong.Text), wrong.Hint)
	}
	return nil, usagef("%s: %v", strings.Join(keys, "."), err)
}

// settingText formats a value for people: strings without quotes.
func settingText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return terminal.Visible(s)
	}
	return terminal.Visible(string(raw))
}

// listSettings prints the settings, one per line.
func listSettings(p *process, prefs *settings.Settings) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(prefs.Effective(), &all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var inner map[string]json.RawMessage
		if name == "permissions" && json.Unmarshal(all[name], &inner) == nil {
			for _, n := range slices.Sorted(maps.Keys(inner)) {
				fmt.Fprintf(p.stdout, "permissions.%s = %s\n", terminal.Visible(n), settingText(inner[n]))
			}
			continue
		}
		fmt.Fprintf(p.stdout, "%s = %s\n", terminal.Visible(name), settingText(all[name]))
	}
	return nil
}
