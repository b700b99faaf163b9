package sandbox_test

import (
	"encoding/json"
	"fmt"
	"os/exec"

	"github.com/parley-go/parley/engine/sandbox"
)

// A command that may write to one directory and reach one name on the network.
func Example() {
	settings, err := sandbox.Parse(json.RawMessage(`{"enabled":true,"network":{"allowedDomains":["example.com"]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	box, err := sandbox.New(sandbox.Options{Settings: settings, Dir: "/srv/project", Path: "/usr/bin"})
	if err != nil {
		fmt.Println(err) // the error explains what is missing, and what to do
		return
	}
	defer box.Close()
	cmd := exec.Command("make")
	cmd.Dir, cmd.Env = "/srv/project", box.Environ([]string{"PATH=/usr/bin:/bin", "GITHUB_TOKEN=not passed on"})
	started, err := box.Confine(cmd)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = cmd.Start()
	over := started(err)
	if err == nil {
		err = cmd.Wait()
	}
	<-over // none of its processes runs any more
	fmt.Println(err)
}

func ExampleSettings_Outside() {
	settings, _ := sandbox.Parse(json.RawMessage(`{"enabled":true,"excludedCommands":["docker *"]}`))
	fmt.Println(settings.Outside("docker ps"), settings.Outside("docker ps; make"))
	// Output: true false
}
