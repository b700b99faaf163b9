package agent

import "github.com/parley-go/parley/internal/cli"

import "testing"

// No child inherits credentials of a model provider, whichever provider answers.
func TestProviderCredentialsAreNotInherited(t *testing.T) {
	set := &setup{cfg: Config{Environ: []string{"PATH=/bin", "ANTHROPIC_API_KEY=a", "OPENAI_API_KEY=b", "AWS_SECRET_ACCESS_KEY=c", "AWS_SESSION_TOKEN=d", "GOOGLE_APPLICATION_CREDENTIALS=e", "CLAUDE_CODE_OAUTH_TOKEN=f", "AWS_REGION=g"},
		Cwd: t.TempDir()}, flags: &cli.Flags{}, vars: map[string]string{}}
	if err := set.loadSettings(); err != nil {
		t.Fatal(err)
	}
	got := set.commandEnv()
	if len(got) != 2 || got[0] != "PATH=/bin" || got[1] != "AWS_REGION=g" {
		t.Errorf("commands get %q", got)
	}
}
