package agent

import (
	"slices"
	"testing"

	"github.com/parley-go/parley/internal/cli"
)

// No child inherits credentials of a model provider, whichever provider answers.
func TestProviderCredentialsAreNotInherited(t *testing.T) {
	set := &setup{cfg: Config{Environ: []string{"PATH=/bin", "ANTHROPIC_API_KEY=a", "OPENAI_API_KEY=b", "AWS_SECRET_ACCESS_KEY=c", "AWS_SESSION_TOKEN=d", "GOOGLE_APPLICATION_CREDENTIALS=e", "CLAUDE_CODE_OAUTH_TOKEN=f", "AWS_REGION=g"},
		Cwd: t.TempDir()}, flags: &cli.Flags{}, vars: map[string]string{}}
	if err := set.loadSettings(); err != nil {
		t.Fatal(err)
	}
	got := set.commandEnv()
	if other := WithoutCredentials(set.cfg.Environ); !slices.Equal(other, got) {
		t.Errorf("a status line gets %q", other)
	}
	for _, name := range []string{"CLAUDE_CODE_SESSION_ACCESS_TOKEN", "PARLEY_TENANT_A_KEY", "AZURE_OPENAI_AD_TOKEN", "GOOGLE_GENERATIVE_AI_API_KEY", "REPLICATE_API_TOKEN", "CEREBRAS_API_KEY", "openai_api_key",
		"ANTHROPIC_FOUNDRY_API_KEY", "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE", "OPENAI_ADMIN_KEY", "AWS_BEARER_TOKEN_BEDROCK"} {
		if !isCredential(name) {
			t.Errorf("commands get %s", name)
		}
	}
	for _, name := range []string{"GH_TOKEN", "STRIPE_API_KEY", "AWS_PROFILE", "GOOGLE_CLOUD_PROJECT", "OPENAI_BASE_URL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "PARLEY_TASK_MARK", "CLAUDE_PROJECT_DIR"} {
		if isCredential(name) {
			t.Errorf("commands do not get %s", name)
		}
	}
	if vars := forCommands(map[string]string{"A": "b", "CLAUDE_CODE_SESSION_ACCESS_TOKEN": "c"}); len(vars) != 1 || vars["A"] != "b" {
		t.Errorf("commands get %q of the host's variables", vars)
	}
	if len(got) != 2 || got[0] != "PATH=/bin" || got[1] != "AWS_REGION=g" {
		t.Errorf("commands get %q", got)
	}
}
