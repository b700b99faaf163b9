package acp

import (
	"encoding/json"
	"slices"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/hub"
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
	init    wire.InitializeResponse // the agent's offer
	mode    string
	model   string
	effort  string
	modeSet bool   // the mode was changed since the agent started
	setting string // the option that the client is setting, if any
	asOf    uint64 // the number of the last entry that they include; states before it do not apply
}

// begin sets the options that the agent starts with, and the changes of the session since.
func (c *chosen) begin(init *wire.InitializeResponse, state *hub.State) {
	if init != nil {
		c.init = *init
	}
	c.mode = firstOf(string(c.init.CurrentPermissionMode), string(wire.ModeDefault))
	c.effort = defaultValue
	if len(c.init.Models) > 0 {
		c.model = c.init.Models[0].Value
	}
	c.apply(state)
}

// apply applies the settings of a state, unless they are outdated.
func (c *chosen) apply(state *hub.State) {
	if state.N < c.asOf {
		return
	}
	c.asOf = state.N
	c.modeSet = state.Mode != ""
	c.mode = firstOf(state.Mode, c.mode)
	c.model = firstOf(state.Model, c.model)
	c.effort = firstOf(state.Effort, c.effort)
}

// setChosen applies the settings of a state, and reports whether the client has to learn of a
// difference. It does not for an option that it is setting: the response contains the result.
func (e *editing) setChosen(state *hub.State) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	mode, model, effort := e.mode, e.model, e.effort
	e.apply(state)
	return mode != e.mode && e.setting != optionMode || model != e.model && e.setting != optionModel || effort != e.effort && e.setting != optionEffort
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

func (s *server) setMode(r *request, p *v1.SetSessionModeRequest) (any, error) {
	e, err := s.opened(p.SessionID)
	if err != nil {
		return nil, err
	}
	defer e.startSetting(optionMode)()
	if err := e.choose(r, optionMode, p.ModeID); err != nil {
		return nil, err
	}
	if mode := e.modes().CurrentModeID; mode != p.ModeID { // somebody else has changed it again
		e.send(v1.SessionUpdate{CurrentModeUpdate: &v1.CurrentModeUpdate{CurrentModeID: mode}})
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
		e.send(v1.SessionUpdate{CurrentModeUpdate: &v1.CurrentModeUpdate{CurrentModeID: e.modes().CurrentModeID}})
	}
	return &v1.SetSessionConfigOptionResponse{ConfigOptions: e.options()}, nil
}

// startSetting reserves the setting of an option for the caller, until it calls the returned
// function.
func (e *editing) startSetting(id string) (end func()) {
	set := func(id string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.setting = id
	}
	e.choosing.Lock()
	set(id)
	return func() {
		set("")
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
		resp, err := e.hub.Control(r.ctx, e.id, controlFor(id, value))
		if err != nil {
			return err
		}
		state, err := e.hub.State(r.ctx, e.id)
		if err != nil {
			return err
		}
		e.setChosen(state)
		if resp != nil {
			return nil
		}
		e.mu.Lock() // another process that runs the session applies it later
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
