package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/parley-go/parley/wire"
)

// A shape is the required type of a setting.
type shape int

const (
	anything shape = iota
	text
	truth
	number
	texts  // a list of strings
	object // an object
	list
)

var shapeNames = map[shape]string{text: "a string", truth: "true or false", number: "a number", texts: "a list of strings", object: "an object", list: "a list"}

func (s shape) fits(v *Value) bool {
	switch s {
	case text:
		return v.kind() == "a string"
	case truth:
		return v.kind() == "true or false"
	case number:
		return v.kind() == "a number"
	case texts:
		return v.array && !slices.ContainsFunc(v.items, func(i *Value) bool { return i.kind() != "a string" })
	case object:
		return v.members != nil
	case list:
		return v.array
	}
	return true
}

// known lists the settings that have an effect in this agent, or that restrict.
var known = map[string]shape{
	"$schema": anything, "permissions": object, "hooks": object, "env": object, "sandbox": object,
	"model": text, "fallbackModel": anything, "effortLevel": text, "apiKeyHelper": text, "awsCredentialExport": text, "statusLine": anything, "outputStyle": text, "language": text,
	"compressSessionsAfterDays": number, "disableAutoMode": text,
	"alwaysThinkingEnabled": truth, "autoCompactEnabled": truth, "autoCompactWindow": number, "claudeMdExcludes": texts, "bashOutputMaxChars": number,
	"disableAllHooks": truth, "allowManagedHooksOnly": truth, "allowManagedPermissionRulesOnly": truth, "allowManagedMcpServersOnly": truth,
	"disabledMcpjsonServers": texts, "autoMemoryEnabled": truth, "autoMemoryDirectory": text, "enabledPlugins": object, "extraKnownMarketplaces": object,
	"allowedMcpServers": list, "deniedMcpServers": list, "disableSkillShellExecution": truth,
	"availableModels": texts, "deniedModels": texts, "allowedProviders": texts,
}

var knownPermissions = map[string]shape{
	"allow": texts, "deny": texts, "ask": texts, "additionalDirectories": texts, "defaultMode": text,
	"disableBypassPermissionsMode": text, "disableAutoMode": text, "denyInsteadOfPrompting": truth,
	"blockReadsOutsideWorkingDirectories": truth, "blockWritesOutsideWorkingDirectories": truth,
}

// ignored lists the settings of the official CLI that have no effect in this agent.
const ignored = `
additionalMarketplaces advisorModel agent agentPushNotifEnabled allowAllClaudeAiMcps allowClaudeInChromeWithManagedMcp allowedChannelPlugins
allowedHttpHookUrls allowedMarketplaces appendPlugins askUserQuestionTimeout attribution attributionProject attributionProjectPolicy
autoContinueAtUsageLimit autoDreamEnabled autoMode autoScrollEnabled autoUpdatesChannel autoUploadSessions
availableModelsMatch awsAuthRefresh bashEditDiffEnabled blockedMarketplaces channelsEnabled claudeMd cleanupPeriodDays companyAnnouncements
crossSessionInbound daemonColdStart defaultShell defaultView desktopSessionCleanupPeriodDays dialogExpiry disableAgentView disableArtifact
disableBundledSkills disableClaudeAiConnectors disableCommandPluginSources disableDeepLinkRegistration disableRemoteControl
disableReplyCheck disableSideloadFlags disableWindowsBashCommandSplit disableWorkflows editorMode emojiCompletionEnabled enableAllProjectMcpServers
enableArtifact enabledMcpjsonServers enableWorkflows enforceAvailableModels fastMode fastModePerSessionOptIn
feedbackDrafts feedbackSurveyRate fileCheckpointingEnabled fileSuggestion footerLinksRegexes forceLoginGatewayUrl forceLoginMethod forceLoginOrgUUID
forceRemoteSettingsRefresh gatewayInternalNetworks gcpAuthRefresh httpHookAllowedEnvVars idleCompaction includeCoAuthoredBy includeGitInstructions
inputNeededNotifEnabled isolatePeerMachines keybindingFlavor managedMcpServers managedSourcesBehavior maxEffortLevel maxProseWidth minimumVersion
modelOverrides modelPicker modelPricing modelSettings otelHeadersHelper parentSettingsBehavior permissions.blockReadsExemptPaths
permissions.workingDirectoriesAsGiven plansDirectory pluginConfigs pluginSuggestionMarketplaces pluginTrustMessage policyHelper
precomputeCompactionEnabled preferredNotifChannel prefersReducedMotion prependPlugins processWrapper promptCacheTtl promptSuggestionEnabled
proxyAuthHelper prUrlTemplate remote remoteControlAtStartup requiredMaximumVersion requiredMinimumVersion respectGitignore respondToBashCommands
showClearContextOnPlanAccept showMessageTimestamps showThinkingSummaries showTurnDuration skillListingBudgetFraction skillListingMaxDescChars
skillOverrides skipAutoPermissionPrompt skipDangerousModePermissionPrompt skipWebFetchPreflight spellcheck spinnerTipsEnabled spinnerTipsOverride
spinnerVerbs sshConfigs sshHostCommands strictKnownMarketplaces strictPluginOnlyCustomization subagentPromptCacheTtl subagentStatusLine
switchModelsOnFlag syncClaudeAiPlugins syncClaudeAiSkills syntaxHighlightingDisabled taskOutputMaxChars teammateMode terminalProgressBarEnabled
terminalTitleFromRename theme timeFormat timeZone todoFeatureEnabled tui ultracode useAutoModeDuringPlan verbose viewMode vimInsertModeRemaps voice
voiceEnabled wheelScrollAccelerationEnabled workflowKeywordTriggerEnabled workflowSizeGuideline worktree wslInheritsWindowsSettings
`

// choices lists the values of settings that allow only certain words.
var choices = map[string][]string{
	"permissions.defaultMode":                  {"default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto", "manual", "delegate"},
	"permissions.disableBypassPermissionsMode": {"disable"},
	"hooks.hooks.type":                         {"command", "http", "prompt", "agent", "mcp_tool"},
	"hooks.hooks.onFailure":                    {"block", "ask", "continue", "allow"},
	"hooks.hooks.shell":                        {"bash", "sh", "powershell"},
	"effortLevel":                              {"low", "medium", "high", "xhigh", "max"},
}

// Names returns the valid names of settings below a key, sorted; nil if any name is valid.
func Names(below ...string) []string {
	switch strings.Join(below, ".") {
	case "":
		return slices.Sorted(maps.Keys(known))
	case "permissions":
		return slices.Sorted(maps.Keys(knownPermissions))
	}
	return nil
}

// CheckChoice returns an error if a setting allows only certain words and the value is not one of
// them.
func CheckChoice(key string, value json.RawMessage) error {
	var word string
	if all := choices[key]; all != nil && (json.Unmarshal(value, &word) != nil || !slices.Contains(all, word)) {
		return fmt.Errorf("%s is one of %s, not %s", key, strings.Join(all, ", "), value)
	}
	return nil
}

// unkept are restrictions that this agent cannot enforce. They are rejected rather than skipped.
var unkept = [][]string{
	{"permissions", "blockReadsOutsideWorkingDirectories"}, {"permissions", "blockWritesOutsideWorkingDirectories"},
	{"availableModels"}, {"deniedModels"}, {"allowedProviders"},
}

// managedUnkept are further such restrictions. Only an administrator can set them; in other files
// they are ignored and reported.
var managedUnkept = strings.Fields("allowedHttpHookUrls allowedMarketplaces blockedMarketplaces disableSideloadFlags enforceAvailableModels " +
	"httpHookAllowedEnvVars maxEffortLevel policyHelper strictKnownMarketplaces strictPluginOnlyCustomization")

// check returns the first error in a file of settings.
func (s *loader) check(l *layer) error {
	if l.all.members == nil {
		return l.wrong(l.all, "Settings are one JSON object; write one.", "the settings are %s", l.all.kind())
	}
	if err := s.checkShapes(l, l.all, known, ""); err != nil {
		return err
	}
	if p := l.all.Get("permissions"); p != nil {
		if err := s.checkShapes(l, p, knownPermissions, "permissions."); err != nil {
			return err
		}
		if m := p.Get("defaultMode"); m != nil {
			if name, _ := m.text(); !slices.Contains(modes, wire.PermissionMode(name)) {
				return l.wrong(m, "Use one of default, acceptEdits, plan, dontAsk and bypassPermissions.", "there is no permission mode %q", name)
			}
		}
		if d := p.Get("disableBypassPermissionsMode"); d != nil {
			if word, _ := d.text(); word != "disable" {
				return l.wrong(d, `Write "disable", or leave it out.`, "permissions.disableBypassPermissionsMode is %q", word)
			}
		}
	}
	for _, path := range unkept {
		if v := l.all.Get(path...); v != nil && (v.truth() || len(v.items) > 0) {
			return l.wrong(v, "Remove it, or leave the file out with --setting-sources.", cannotEnforce, strings.Join(path, "."))
		}
	}
	for _, name := range managedUnkept {
		if v := l.all.Get(name); l.Layer == Managed && v != nil && v.kind() != "null" && (v.kind() != "true or false" || v.truth()) {
			return l.wrong(v, "The administrator can remove it.", cannotEnforce, name)
		}
	}
	if env := l.all.Get("env"); env != nil {
		for _, n := range env.names {
			v := env.members[n]
			if v.members != nil || v.array || n == "" || strings.ContainsAny(n, "=\x00") {
				return l.wrong(v, "Write it as \"NAME\": \"value\".", "the environment variable %q has no value that is a string", n)
			}
		}
	}
	_, err := hooksOf(l, l.all)
	return err
}

const cannotEnforce = "%s is a restriction that this version cannot enforce"

var modes = []wire.PermissionMode{wire.ModeDefault, wire.ModeManual, wire.ModeAuto, wire.ModeDelegate, wire.ModeAcceptEdits, wire.ModePlan, wire.ModeDontAsk, wire.ModeBypassPermissions}

func (s *loader) checkShapes(l *layer, v *Value, table map[string]shape, prefix string) error {
	for _, n := range v.names {
		m := v.members[n]
		want, ok := table[n]
		if !ok {
			for name := range table {
				if strings.EqualFold(name, n) {
					return l.wrong(m, "Correct the spelling.", "%s%s is spelled %s", prefix, n, name)
				}
			}
			s.names = append(s.names, prefix+n)
			s.unknown = append(s.unknown, l.at(m))
			continue
		}
		if m.kind() != "null" && !want.fits(m) {
			return l.wrong(m, "Write "+shapeNames[want]+".", "%s%s is %s", prefix, n, m.kind())
		}
	}
	return nil
}
