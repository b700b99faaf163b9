// Pack creates packages of the programs that scripts/release built: archives with man
// pages and completions, a Homebrew formula, an npm package with one package per
// platform, and the nfpm configuration for deb, rpm and apk. The same programs produce
// the same files.
//
//	go run ./internal/pack -parley PROGRAM -version VERSION DIST
//
// PROGRAM is the command for this machine, which prints its help and its completions.
// scripts/packages runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	program := flag.String("parley", "parley", "the command for this machine")
	version := flag.String("version", "", "the version of the packages")
	flag.Parse()
	if flag.NArg() != 1 || *version == "" {
		fmt.Fprintln(os.Stderr, "usage: pack -parley PROGRAM -version VERSION DIST")
		os.Exit(2)
	}
	if err := pack(*program, *version, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// A file is part of a package.
type file struct {
	path string // in the package
	data []byte
	mode int64
}

// A build is the program for one platform.
type build struct {
	os, arch string
	data     []byte
}

// program returns the name of the program in packages.
func (b build) program() string {
	if b.os == "windows" {
		return "parley.exe"
	}
	return "parley"
}

func pack(program, version, dist string) error {
	run := func(args ...string) ([]byte, error) {
		out, err := exec.Command(program, args...).Output()
		if err != nil {
			return nil, fmt.Errorf("parley %s: %w", strings.Join(args, " "), err)
		}
		return out, nil
	}
	var common []file
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		common = append(common, file{name, data, 0o644})
	}
	pages, err := manPages(version, run)
	if err != nil {
		return err
	}
	for _, c := range [][2]string{{"bash", "completions/parley.bash"}, {"zsh", "completions/_parley"}, {"fish", "completions/parley.fish"}} {
		data, err := run("completion", c[0])
		if err != nil {
			return err
		}
		common = append(common, file{c[1], data, 0o644})
	}
	common = append(common, pages...)
	for _, f := range common {
		if err := write(filepath.Join(dist, "share"), f); err != nil {
			return err
		}
	}
	builds, err := findBuilds(dist, version)
	if err != nil {
		return err
	}
	for _, b := range builds {
		name := fmt.Sprintf("parley_%s_%s_%s", version, b.os, b.arch)
		files := append([]file{{b.program(), b.data, 0o755}}, common...)
		var data []byte
		if b.os == "windows" {
			name += ".zip"
			data, err = zipped(files)
		} else {
			name += ".tar.gz"
			data, err = tarred(files)
		}
		if err != nil {
			return err
		}
		if err := write(dist, file{name, data, 0o644}); err != nil {
			return err
		}
		if b.os == "linux" {
			if err := write(dist, file{"nfpm_" + b.arch + ".yaml", nfpmConfig(b, version, dist), 0o644}); err != nil {
				return err
			}
		}
	}
	formula, err := homebrew(dist, version)
	if err != nil {
		return err
	}
	for _, f := range append(npm(builds, version), formula...) {
		if err := write(dist, f); err != nil {
			return err
		}
	}
	return nil
}

// findBuilds reads the programs of a version, in the order of their names.
func findBuilds(dist, version string) (all []build, err error) {
	prefix := "parley_" + version + "_"
	names, err := filepath.Glob(filepath.Join(dist, prefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		system, arch, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), prefix), "_")
		arch = strings.TrimSuffix(arch, ".exe")
		if strings.Contains(arch, ".") { // files beside a program: its bill of materials, and archives
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, build{system, arch, data})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no program of version %s; run scripts/release", dist, version)
	}
	return all, nil
}

func write(dir string, f file) error {
	path := filepath.Join(dir, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, f.data, os.FileMode(f.mode)); err != nil {
		return err
	}
	return os.Chmod(path, os.FileMode(f.mode))
}
