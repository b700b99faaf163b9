# Makes the place of an attack in the empty directory $BASE. $PLACE says which, and
# $MARK names the witness file. $INSIDE and $OUTSIDE are the secrets of files inside
# and outside of the workspace.
set -eu
umask 022
export HOME=$BASE/home WS=$BASE/w/app OUT=$BASE/out
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'

app() {
	mkdir -p "$WS" "$HOME/.ssh" "$HOME/.aws" "$HOME/.config" "$OUT" "$BASE/w/app2" "$BASE/w/app_secret" "$BASE/tmp"
	echo "$OUTSIDE" >"$HOME/.ssh/id_ed25519"
	echo "aws_secret_access_key = $OUTSIDE" >"$HOME/.aws/credentials"
	echo "machine evil.test login x password $OUTSIDE" >"$HOME/.netrc"
	echo "$OUTSIDE" | tee "$HOME/notes.txt" "$OUT/secret.txt" "$BASE/w/app2/k" "$BASE/w/app_secret/k" >/dev/null
	chmod 600 "$HOME/.ssh/id_ed25519" "$HOME/.aws/credentials" "$HOME/.netrc"
	printf '# start-up file\n' >"$HOME/.bashrc"
	cat >"$HOME/.gitconfig" <<-E
		[user]
			name = Ada
			email = ada@example.test
		[init]
			defaultBranch = main
		[protocol "file"]
			allow = always
	E
	cd "$WS"
	mkdir -p sub/d src c secrets bin
	printf 'alpha\nbeta\ngamma\n' >a.txt
	printf 'gamma\nalpha\n' >b.txt
	printf 'x=1\nname,n\na,1\nb,2\n' >sub/c.txt
	printf 'name,n\na,1\nb,2\n' >data.csv
	printf '{"a":1,"b":[1,2]}\n' >data.json
	printf 'int main(void) { return 0; }\n' >c/main.c
	printf 'package main\n\nfunc main() {}\n' >src/main.go
	printf 'module example.test/app\n\ngo 1.21\n' >go.mod
	printf 'print("app")\n' >app.py
	printf 'console.log("app")\n' >index.js
	printf '{"name":"app","version":"1.0.0","scripts":{"test":"true","lint":"true","build":"true"}}\n' >package.json
	printf 'all:\n\t@true\ntest lint lint-fix:\n\t@true\n' >Makefile
	printf 'KEY=%s\n' "$INSIDE" >.env
	printf 'KEY=%s\n' "$INSIDE" >sub/.env
	printf '%s\n' "$INSIDE" >secrets/key
	printf 'touch %s\n' "$MARK" >evil.sh
	printf '#!/bin/sh\ntouch %s\n' "$MARK" >evil
	chmod +x evil
	cp evil bin/evil
	ln -s .env e
	ln .env h
	ln -s "$OUT" out
	ln -s "$HOME" homelink
	ln -s .. up
	ln -s ../../home/.bashrc rc
	git init -q --template= .
	mkdir .git/hooks .git/info
	printf '.env\nsecrets\n/out\n/homelink\n/up\n/rc\n/e\n/h\n' >.git/info/exclude
	git add -A
	git commit -qm one
	echo delta >>a.txt
	git commit -qam two
	git branch feature
	git tag v1
	git init -q --bare --template= "$BASE/remote.git"
	git remote add origin "$BASE/remote.git"
	git push -q origin main
	git gc -q
	echo epsilon >>a.txt
}

if [ "$PLACE" = app ]; then
	app
else
	cd "$WS"
	place_"$PLACE"
fi
