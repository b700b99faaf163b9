# Makes the project of the everyday commands in the empty directory $BASE. $LAYOUT says
# how its root came to be: plain, a linked worktree, a submodule or behind a symbolic
# link. Tools are in the home, as nvm, pyenv and cargo install them.
set -eu
umask 022
export HOME=$BASE/home
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
mkdir -p "$HOME/.config/git" "$BASE/w" "$BASE/tmp"

# tool FILE TEXT makes a script that prints a version.
tool() {
	mkdir -p "$(dirname "$1")"
	printf '#!/bin/sh\n[ -r "%s/../data" ] && cat "%s/../data"\necho "%s"\n' "$(dirname "$1")" "$(dirname "$1")" "$2" >"$1"
	chmod +x "$1"
	echo 'data of the tool' >"$(dirname "$1")/../data"
}
tool "$HOME/.nvm/versions/node/v20.0.0/bin/node" v20.0.0
tool "$HOME/.nvm/versions/node/v20.0.0/bin/npm" 10.0.0
tool "$HOME/.pyenv/versions/3.12.0/bin/python3" 'Python 3.12.0'
mkdir -p "$HOME/.pyenv/shims" "$HOME/.cargo/bin"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$HOME/.pyenv/versions/3.12.0/bin/python3" >"$HOME/.pyenv/shims/python3.12"
chmod +x "$HOME/.pyenv/shims/python3.12"
tool "$HOME/.rustup/toolchains/stable/bin/cargo" 'cargo 1.80.0'
ln -s ../../.rustup/toolchains/stable/bin/cargo "$HOME/.cargo/bin/cargo"
ln -s ../../.rustup/toolchains/stable/bin/cargo "$HOME/.cargo/bin/rustc"

cat >"$HOME/.gitconfig" <<-E
	[user]
		name = Ada
		email = ada@example.test
	[init]
		defaultBranch = main
	[core]
		excludesFile = ~/.gitignore_global
	[alias]
		lg = log --oneline --graph
	[protocol "file"]
		allow = always
E
echo '*.swp' >"$HOME/.gitignore_global"

project() {
	mkdir -p "$1/src" "$1/docs" "$1/tests" "$1/build"
	cd "$1"
	printf '# Shop\n\nhello v1.0\nA small shop.\n' >README.md
	printf '# Guide\n\nRead me.\n' >docs/guide.md
	printf 'package main\n\nimport "fmt"\n\n// TODO: less\nfunc main() {\n\tfmt.Println("hello")\n}\n' >src/main.go
	printf 'package main\n\nimport "os"\n\nfunc util() string {\n\treturn os.Args[0]\n}\n' >src/util.go
	printf 'fn main() {}\n' >src/main.rs
	printf 'module example.test/shop\n\ngo 1.21\n' >go.mod
	printf 'const fs = require("fs")\nconsole.log(1)\n' >index.js
	printf 'def app():\n    return 1\n' >app.py
	printf 'from app import app\n' >tests/test_app.py
	printf '{"name":"shop","version":"1.2.3","scripts":{"test":"true"},"dependencies":{}}\n' >package.json
	printf '{"a":[1,2,3]}\n' >data.json
	printf 'name,n\na,1\nb,2\nb,2\n' >data.csv
	printf '# settings\nport: 80\n' >config.yaml
	for i in 1 2 3 4 5 6; do printf 'INFO %d\nERROR %d failed\nWARN\n' $i $i; done >log.txt
	printf 'all:\n\t@true\n' >Makefile
	printf 'build\n' >.gitignore
	git init -q --template= .
	git add -A
	git commit -qm 'first commit'
	git tag v1.0
	printf 'More.\n' >>README.md
	git commit -qam 'second commit'
	git branch feature
	printf 'stashed\n' >>docs/guide.md
	git stash -q
	printf 'changed\n' >>src/util.go
	echo new >new.txt
	git init -q --bare --template= "$BASE/origin.git"
	git remote add origin "$BASE/origin.git"
	git push -q origin main
}

case $LAYOUT in
plain) project "$BASE/w/shop" ;;
symlink)
	project "$BASE/w/real"
	ln -s real "$BASE/w/shop"
	;;
worktree)
	project "$BASE/w/first"
	git worktree add -q "$BASE/w/shop" -b linked
	cd "$BASE/w/shop"
	echo new >new.txt
	;;
submodule)
	project "$BASE/w/part"
	git init -q --template= "$BASE/w/whole"
	cd "$BASE/w/whole"
	git submodule --quiet add "$BASE/w/part" shop
	git commit -qm whole
	;;
esac
