package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	about    = "The Claude Agent SDK protocol in Go, both ends of the wire"
	homepage = "https://github.com/parley-go/parley"
)

// nfpmConfig returns the configuration for deb, rpm and apk.
func nfpmConfig(b build, version, dist string) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, `name: parley
arch: %s
platform: linux
version: %s
section: devel
priority: optional
maintainer: The Parley authors <parley@users.noreply.github.com>
description: %s
homepage: %s
license: Apache-2.0
mtime: %s
recommends:
  - git
contents:
`, b.arch, version, about, homepage, released.Format("2006-01-02T15:04:05Z"))
	add := func(from, to, mode string) {
		fmt.Fprintf(&out, "  - src: %s\n    dst: %s\n    file_info:\n      mode: %s\n", filepath.ToSlash(filepath.Join(dist, from)), to, mode)
	}
	add(fmt.Sprintf("parley_%s_linux_%s", version, b.arch), "/usr/bin/parley", "0755")
	add("share/completions/parley.bash", "/usr/share/bash-completion/completions/parley", "0644")
	add("share/completions/_parley", "/usr/share/zsh/vendor-completions/_parley", "0644")
	add("share/completions/parley.fish", "/usr/share/fish/vendor_completions.d/parley.fish", "0644")
	add("share/man/*.1", "/usr/share/man/man1/", "0644")
	add("share/LICENSE", "/usr/share/doc/parley/copyright", "0644")
	return []byte(out.String())
}

// homebrew returns the formula: the archive of each platform with its checksum.
func homebrew(dist, version string) ([]file, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "class Parley < Formula\n  desc %q\n  homepage %q\n  version %q\n  license \"Apache-2.0\"\n", about, homepage, version)
	found := false
	for _, system := range [][2]string{{"darwin", "macos"}, {"linux", "linux"}} {
		var parts string
		for _, arch := range [][2]string{{"arm64", "arm"}, {"amd64", "intel"}} {
			name := fmt.Sprintf("parley_%s_%s_%s.tar.gz", version, system[0], arch[0])
			data, err := os.ReadFile(filepath.Join(dist, name))
			if os.IsNotExist(err) {
				continue // RELEASE_PLATFORMS excludes it
			}
			if err != nil {
				return nil, err
			}
			found = true
			parts += fmt.Sprintf("    on_%s do\n      url \"%s/releases/download/v%s/%s\"\n      sha256 \"%x\"\n    end\n", arch[1], homepage, version, name, sha256.Sum256(data))
		}
		if parts != "" {
			fmt.Fprintf(&b, "\n  on_%s do\n%s  end\n", system[1], parts)
		}
	}
	if !found {
		return nil, nil
	}
	b.WriteString(`
  def install
    bin.install "parley"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/parley.bash" => "parley"
    zsh_completion.install "completions/_parley"
    fish_completion.install "completions/parley.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/parley version")
  end
end
`)
	return []file{{"parley.rb", []byte(b.String()), 0o644}}, nil
}

// The names of systems and processors in npm.
var (
	nodeOS   = map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32"}
	nodeArch = map[string]string{"amd64": "x64", "arm64": "arm64"}
)

const scope = "@parley-go/parley"

// npm returns a package that finds the program, and a package with the program for each
// platform, of which npm installs the matching one.
func npm(builds []build, version string) []file {
	marshal := func(v any) []byte {
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			panic(err) // strings only
		}
		return append(data, '\n')
	}
	optional := map[string]string{}
	var files []file
	for _, b := range builds {
		platform := nodeOS[b.os] + "-" + nodeArch[b.arch]
		optional[scope+"-"+platform] = version
		dir := "npm/parley-" + platform + "/"
		files = append(files,
			file{dir + b.program(), b.data, 0o755},
			file{dir + "package.json", marshal(map[string]any{
				"name": scope + "-" + platform, "version": version, "description": about + ", for " + platform, "license": "Apache-2.0",
				"repository": homepage, "os": []string{nodeOS[b.os]}, "cpu": []string{nodeArch[b.arch]}, "files": []string{b.program()},
			}), 0o644})
	}
	return append(files,
		file{"npm/parley/package.json", marshal(map[string]any{
			"name": scope, "version": version, "description": about, "license": "Apache-2.0", "repository": homepage,
			"bin": map[string]string{"parley": "parley.js"}, "main": "index.js", "types": "index.d.ts",
			"files": []string{"parley.js", "index.js", "index.d.ts"}, "engines": map[string]string{"node": ">=18"}, "optionalDependencies": optional,
		}), 0o644},
		file{"npm/parley/index.js", []byte(npmIndex), 0o644},
		file{"npm/parley/index.d.ts", []byte("/** The path of the parley program, for pathToClaudeCodeExecutable. */\nexport const path: string;\n"), 0o644},
		file{"npm/parley/parley.js", []byte(npmProgram), 0o755},
		file{"npm/parley/README.md", []byte(npmReadme), 0o644})
}

const npmIndex = `// The path of the parley program for this platform.
const name = "` + scope + `-" + process.platform + "-" + process.arch;
const program = process.platform === "win32" ? "parley.exe" : "parley";
try {
  exports.path = require.resolve(name + "/" + program);
} catch {
  throw new Error("parley: the package " + name + " is not installed. Install ` + scope + ` again without --omit=optional; if there is no such package, build the program with: go install github.com/parley-go/parley/cmd/parley@latest");
}
`

const npmProgram = `#!/usr/bin/env node
// Runs the program for this platform. Signals reach it as they reach this process.
const { spawn } = require("node:child_process");
const child = spawn(require("./index.js").path, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (err) => { console.error("parley: " + err.message); process.exit(1); });
child.on("exit", (code, signal) => { if (signal) { process.removeAllListeners(signal); process.kill(process.pid, signal); } else process.exit(code); });
`

const npmReadme = "# parley\n\nThe `parley` command from npm: `npx " + scope + " demo`.\n\nWith the official TypeScript SDK:\n\n```js\nimport { query } from \"@anthropic-ai/claude-agent-sdk\";\nimport { path } from \"" + scope + "\";\n\nfor await (const message of query({ prompt: \"Hello\", options: { pathToClaudeCodeExecutable: path } })) console.log(message);\n```\n\n[" + homepage + "](" + homepage + ")\n"
