package acp

import (
	"encoding/json"
	"slices"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/wire"
)

// modeNames are the permission modes that clients can choose from, in order.
var modeNames = []v1.SessionMode{
	{ID: string(wire.ModeDefault), Name: "Manual", Description: "Ask before calls that change something"},
	{ID: string(wire.ModeAcceptEdits), Name: "Accept edits", Description: "Edit files without asking"},
	{ID: string(wire.ModePlan), Name: "Plan", Description: "Read and plan, change nothing"},
	{ID: string(wire.ModeAuto), Name: "Auto", Description: "Let a model decide about calls, and ask when it cannot"},
	{ID: string(wire.ModeDontAsk), Name: "Don't ask", Description: "Deny what no rule allows"},
	{ID: string(wire.ModeBypassPermissions), Name: "Bypass permissions", Description: "Allow everything that no rule denies"},
}

// The ids of options.
const (
	optionMode   = "mode"
	optionModel  = "model"
	optionEffort = "effort"
	defaultValue = "default"
)

// chosen holds the current options of a session. It is guarded by the mutex of the editing.
type chosen struct {
	init   wire.InitializeResponse // the agent's offer
	mode   string
	model  string
	effort string
	// setting is the option that the client is setting: entries of the journal about it are
	// older.
	setting string
}

func (c *chosen) begin(init *wire.InitializeResponse) {
	if init != nil {
		c.init = *init
	}
	c.mode = firstOf(string(c.init.CurrentPermissionMode), string(wire.ModeDefault))
	c.effort = defaultValue
	if len(c.init.Models) > 0 {
		c.model = c.init.Models[0].Value
	}
}

func firstMode(m wire.PermissionMode, other string) string {
	if m == "" {
		return other
	}
	return string(m)
}

// setChosen applies a change from the journal, and reports whether it made a difference.
func (e *editing) setChosen(f func(*chosen)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	mode, model, effort := e.mode, e.model, e.effort
	f(&e.chosen)
	switch e.setting {
	case optionMode:
		e.mode = mode
	case optionModel:
		e.model = model
	case optionEffort:
		e.effort = effort
	}
	return mode != e.mode || model != e.model || effort != e.effort
}

// offered returns the available modes of the session.
func (c *chosen) offered() []v1.SessionMode {
	list := slices.Clone(modeNames)
	if !slices.ContainsFunc(list, func(m v1.SessionMode) bool { return m.ID == c.mode }) {
		list = append(list, v1.SessionMode{ID: c.mode, Name: c.mode})
	}
	return list
}

// modes returns the modes for clients that do not support options.
func (e *editing) modes() *v1.SessionModeState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &v1.SessionModeState{CurrentModeID: e.mode, AvailableModes: e.offered()}
}

// options returns the available options and their current values.
func (e *editing) options() []v1.SessionConfigOption {
	e.mu.Lock()
	defer e.mu.Unlock()
	option := func(id, name, about string, category v1.SessionConfigOptionCategory, current string, values []v1.SessionConfigSelectOption) v1.SessionConfigOption {
		return v1.SessionConfigOption{ID: id, Name: name, Description: about, Category: category, Type: "select", CurrentValue: mustJSON(current), Options: mustJSON(values)}
	}
	var modes, models []v1.SessionConfigSelectOption
	for _, m := range e.offered() {
		modes = append(modes, v1.SessionConfigSelectOption{Value: m.ID, Name: m.Name, Description: m.Description})
	}
	list := []v1.SessionConfigOption{option(optionMode, "Mode", "Which calls need permission", v1.SessionConfigOptionCategoryMode, e.mode, modes)}
	for _, m := range e.init.Models {
		models = append(models, v1.SessionConfigSelectOption{Value: m.Value, Name: firstOf(m.DisplayName, m.Value), Description: m.Description})
	}
	if len(models) == 0 {
		return list
	}
	if !slices.ContainsFunc(models, func(m v1.SessionConfigSelectOption) bool { return m.Value == e.model }) {
		models = append(models, v1.SessionConfigSelectOption{Value: e.model, Name: e.model})
	}
	list = append(list, option(optionModel, "Model", "The model that answers", v1.SessionConfigOptionCategoryModel, e.model, models))
	if levels := e.levels(); len(levels) > 0 {
		values := []v1.SessionConfigSelectOption{{Value: defaultValue, Name: "Default"}}
		for _, l := range levels {
			values = append(values, v1.SessionConfigSelectOption{Value: l, Name: capital(l)})
		}
		list = append(list, option(optionEffort, "Effort", "How much the model thinks", v1.SessionConfigOptionCategoryThoughtLevel, e.effort, values))
	}
	return list
}

// levels returns the effort levels of the model.
func (c *chosen) levels() (list []string) {
	for _, m := range c.init.Models {
		if m.Value == c.model {
			for _, l := range m.SupportedEffortLevels {
				list = append(list, string(l))
			}
		}
	}
	return list
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

// optionsChanged sends the current options.
func (f *follower) optionsChanged() {
	f.send(v1.SessionUpdate{CurrentModeUpdate: &v1.CurrentModeUpdate{CurrentModeID: f.modes().CurrentModeID}})
	f.send(v1.SessionUpdate{ConfigOptionUpdate: &v1.ConfigOptionUpdate{ConfigOptions: f.options()}})
}

// controlled applies a change of a setting by somebody else.
func (f *follower) controlled(request json.RawMessage) {
	var r struct {
		Subtype  string         `json:"subtype"`
		Mode     string         `json:"mode"`
		Model    string         `json:"model"`
		Title    string         `json:"title"`
		Settings map[string]any `json:"settings"`
	}
	if json.Unmarshal(request, &r) != nil {
		return
	}
	changed := f.setChosen(func(c *chosen) {
		switch r.Subtype {
		case "set_permission_mode":
			c.mode = firstOf(r.Mode, c.mode)
		case "set_model":
			c.model = firstOf(r.Model, defaultValue)
		case "apply_flag_settings":
			if level, ok := r.Settings["effortLevel"]; ok {
				c.effort = defaultValue
				if s, ok := level.(string); ok && s != "" {
					c.effort = s
				}
			}
		}
	})
	if changed && !f.t.replay {
		f.optionsChanged()
	}
	if r.Subtype == "rename_session" && r.Title != "" {
		f.send(v1.SessionUpdate{SessionInfoUpdate: &v1.SessionInfoUpdate{Title: r.Title}})
	}
}

func (s *server) setMode(r *request, p *v1.SetSessionModeRequest) (any, error) {
	e, err := s.opened(p.SessionID)
	if err != nil {
		return nil, err
	}
	defer e.startSetting(optionMode)()
	if err := e.choose(r, optionMode, p.ModeID); err != nil {
		return nil, err
	}
	e.send(v1.SessionUpdate{ConfigOptionUpdate: &v1.ConfigOptionUpdate{ConfigOptions: e.options()}})
	return empty{}, nil
}

func (s *server) setOption(r *request, p *v1.SetSessionConfigOptionRequest) (any, error) {
	e, err := s.opened(p.SessionID)
	if err != nil {
		return nil, err
	}
	var value string
	if json.Unmarshal(p.Value, &value) != nil {
		return nil, errorf(CodeInvalidParams, "the value of %s must be a string", p.ConfigID)
	}
	defer e.startSetting(p.ConfigID)()
	if err := e.choose(r, p.ConfigID, value); err != nil {
		return nil, err
	}
	if p.ConfigID == optionMode {
		e.send(v1.SessionUpdate{CurrentModeUpdate: &v1.CurrentModeUpdate{CurrentModeID: value}})
	}
	return &v1.SetSessionConfigOptionResponse{ConfigOptions: e.options()}, nil
}

// startSetting reserves the setting of an option for the caller, until it calls the returned
// function.
func (e *editing) startSetting(id string) (end func()) {
	e.choosing.Lock()
	e.mu.Lock()
	e.setting = id
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		e.setting = ""
		e.mu.Unlock()
		e.choosing.Unlock()
	}
}

// choose sets an option.
func (e *editing) choose(r *request, id, value string) error {
	for _, o := range e.options() {
		if o.ID != id {
			continue
		}
		var values []v1.SessionConfigSelectOption
		json.Unmarshal(o.Options, &values)
		if !slices.ContainsFunc(values, func(v v1.SessionConfigSelectOption) bool { return v.Value == value }) {
			return errorf(CodeInvalidParams, "%s cannot be %q", id, value)
		}
		if _, err := e.hub.Control(r.ctx, e.id, controlFor(id, value)); err != nil {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		switch id {
		case optionMode:
			e.mode = value
		case optionModel:
			e.model = value
		case optionEffort:
			e.effort = value
		}
		return nil
	}
	return errorf(CodeInvalidParams, "there is no option %q", id)
}

// controlFor returns the control request that sets an option.
func controlFor(id, value string) json.RawMessage {
	switch id {
	case optionMode:
		return mustJSON(map[string]any{"subtype": "set_permission_mode", "mode": value})
	case optionModel:
		return mustJSON(map[string]any{"subtype": "set_model", "model": value})
	}
	var level any
	if value != defaultValue {
		level = value
	}
	return mustJSON(map[string]any{"subtype": "apply_flag_settings", "settings": map[string]any{"effortLevel": level}})
}
