package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rouse-run/rouse/authhooks/wholefile"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/signing"
)

// keysCmd keeps the ring that claim and write tokens and webhook signatures are made with.
type keysCmd struct {
	New    keysNewCmd    `cmd:"" help:"Print a ring with one fresh key: set ROUSE_KEYS to it, or to a file that holds it, on every gateway of a database."`
	Ls     keysLsCmd     `cmd:"" aliases:"list" help:"List the keys of a ring, without their secrets."`
	Add    keysAddCmd    `cmd:"" help:"Add a fresh key that only verifies."`
	Rotate keysRotateCmd `cmd:"" help:"Let another key sign; the ones before it go on to verify."`
	Retire keysRetireCmd `cmd:"" help:"Take a key out: nothing made with it is accepted any more."`
}

type keysNewCmd struct{}

func (keysNewCmd) Run(r *run) error {
	_, err := fmt.Fprint(r.io.Out, claims.NewKeys())
	return err
}

// ringFlags say which ring.
type ringFlags struct {
	File string `help:"The ring's file (default: ROUSE_KEYS, if it is a path)." type:"path" placeholder:"FILE"`
}

func (f ringFlags) path(r *run) (string, error) {
	if f.File != "" {
		return f.File, nil
	}
	// Not the value's kind is looked at but whether it is there: a ring in the variable itself cannot be changed here.
	if v := r.environ()["ROUSE_KEYS"]; v != "" && (v[0] == '/' || v[0] == '.') {
		return v, nil
	}
	return "", failf(ExitUsage, "name the ring's file with --file, or set ROUSE_KEYS to it")
}

// change rewrites the ring's file.
func (f ringFlags) change(r *run, change func(text string) (string, error)) error {
	path, err := f.path(r)
	if err != nil {
		return err
	}
	err = wholefile.Change(path, func(old []byte) ([]byte, error) {
		if old == nil {
			return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		text, err := change(string(old))
		return []byte(text), err
	})
	return ringError(err)
}

// ringError is what is wrong with a ring, without a code that is for the wire.
func ringError(err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return failf(ExitUsage, "%s", p.Public)
	}
	return err
}

type keysLsCmd struct {
	ringFlags
	JSON bool `help:"Print JSON."`
}

// ringKey is a key as it is listed.
type ringKey struct {
	ID      string `json:"id"`
	Signs   bool   `json:"signs"`
	Webhook string `json:"webhook_kid"`
}

func (c keysLsCmd) Run(r *run) error {
	path, err := c.path(r)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	ring, err := claims.ParseKeys(string(raw))
	if err != nil {
		return ringError(err)
	}
	var list []ringKey
	secrets := ring.Secrets()
	for i, id := range ring.IDs() {
		signer, err := signing.Derive(secrets[i : i+1])
		if err != nil {
			return err
		}
		list = append(list, ringKey{id, i == 0, signer.Kid()})
	}
	if c.JSON {
		return r.printJSON(list)
	}
	rows := make([][]string, len(list))
	for i, k := range list {
		rows[i] = []string{printable(k.ID), map[bool]string{true: "signs", false: "verifies"}[k.Signs], k.Webhook}
	}
	newPrinter(r).table([]string{"KEY", "DOES", "WEBHOOK KID"}, rows)
	return nil
}

const restartAll = "Restart every gateway of the database for it to count."

type keysAddCmd struct{ ringFlags }

func (keysAddCmd) Help() string {
	return `With several gateways, or receivers that keep the published keys: add a key, restart all gateways,
and rotate to it five minutes later, so that nobody meets a signature of a key it has not seen.

Example:
  rouse keys add --file /etc/rouse/keys`
}

func (c keysAddCmd) Run(r *run) error {
	var id string
	err := c.change(r, func(text string) (ring string, err error) {
		ring, id, err = claims.AddKey(text)
		return ring, err
	})
	if err != nil {
		return err
	}
	r.say("Key %s verifies. %s Then: rouse keys rotate --to %s", id, restartAll, id)
	_, err = fmt.Fprintln(r.io.Out, id)
	return err
}

type keysRotateCmd struct {
	ringFlags
	To string `help:"The id of the key that is to sign; without it, a fresh one is made." placeholder:"ID"`
}

func (keysRotateCmd) Help() string {
	return `Without --to this is for a single gateway: others would refuse what is signed with a key that they
have not read yet. With several, run "rouse keys add" and restart them first.

Examples:
  rouse keys rotate --file /etc/rouse/keys
  rouse keys rotate --file /etc/rouse/keys --to 5f0c1a22`
}

func (c keysRotateCmd) Run(r *run) error {
	id := c.To
	err := c.change(r, func(text string) (string, error) {
		if c.To == "" {
			var err error
			if text, id, err = claims.AddKey(text); err != nil {
				return "", err
			}
		}
		return claims.SignWith(text, id)
	})
	if err != nil {
		return err
	}
	r.say("Key %s signs, the others verify until they are retired. %s", id, restartAll)
	_, err = fmt.Fprintln(r.io.Out, id)
	return err
}

type keysRetireCmd struct {
	ringFlags
	ID string `arg:"" help:"The key's id."`
}

func (keysRetireCmd) Help() string {
	return `Wait until the longest lease made with it is over. If the key has leaked, do not wait: whoever
holds a claim made with it has to claim again.

Example:
  rouse keys retire 5f0c1a22 --file /etc/rouse/keys`
}

func (c keysRetireCmd) Run(r *run) error {
	if err := c.change(r, func(text string) (string, error) { return claims.Retire(text, c.ID) }); err != nil {
		return err
	}
	r.say("Key %s is out of the ring. %s", printable(c.ID), restartAll)
	return nil
}
