package cli

import (
	"bufio"
	"fmt"
	"strings"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/auth"
)

// tokenCmd keeps the file of users' tokens.
type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token that acts as a principal, and print it once."`
	Ls     tokenLsCmd     `cmd:"" aliases:"list" help:"List the tokens of a file; a token itself is nowhere."`
	Revoke tokenRevokeCmd `cmd:"" help:"Take tokens out of a file: the gateway that reads it refuses them from the next request on."`
	Hash   tokenHashCmd   `cmd:"" help:"Read a token from standard input and print its line for a token file."`
}

type tokenCreateCmd struct {
	Principal string        `help:"Who the token acts as, kind:id; for example user:ada, or system:framework to pass every check." required:"" placeholder:"KIND:ID"`
	File      string        `help:"Add its hash to this token file (ROUSE_TOKENS_FILE of the gateway); without it the line is printed to standard error." type:"path" placeholder:"FILE"`
	Name      string        `help:"What the token is for." placeholder:"TEXT"`
	Expires   time.Duration `help:"How long it is valid; without it, for ever." placeholder:"TIME"`
}

func (c tokenCreateCmd) Run(r *run) error {
	p, err := auth.Parse(c.Principal)
	if err != nil {
		return fail(ExitUsage, err)
	}
	if c.Expires < 0 {
		return failf(ExitUsage, "--expires must not be negative")
	}
	token := devtoken.NewToken()
	e := devtoken.Entry{Principal: p.Key(), SHA256: devtoken.Hash(token), Name: c.Name}
	if c.Expires > 0 {
		e.ExpiresAt = time.Now().Add(c.Expires).UTC().Truncate(time.Second)
	}
	switch {
	case c.File != "":
		if err := devtoken.Add(c.File, e); err != nil {
			return err
		}
		r.say("The token's hash is in %s. The token itself is printed once, here:", c.File)
	case c.Expires > 0:
		return failf(ExitUsage, "--expires needs --file: lines hold no time")
	default:
		r.say("For the token file: %s", e.Line())
	}
	_, err = fmt.Fprintln(r.io.Out, token)
	return err
}

// tokenFileFlags say which token file.
type tokenFileFlags struct {
	File string `help:"The token file (default: ROUSE_TOKENS_FILE)." type:"path" placeholder:"FILE"`
}

func (f tokenFileFlags) path(r *run) (string, error) {
	if f.File != "" {
		return f.File, nil
	}
	if v := r.environ()["ROUSE_TOKENS_FILE"]; v != "" {
		return v, nil
	}
	return "", failf(ExitUsage, "name the token file with --file, or set ROUSE_TOKENS_FILE to it")
}

type tokenLsCmd struct {
	tokenFileFlags
	JSON bool `help:"Print JSON."`
}

// tokenInfo is a token as it is listed.
type tokenInfo struct {
	ID        string    `json:"id"`
	Principal string    `json:"principal"`
	Name      string    `json:"name,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

func (c tokenLsCmd) Run(r *run) error {
	path, err := c.path(r)
	if err != nil {
		return err
	}
	all, err := devtoken.List(path)
	if err != nil {
		return err
	}
	list := []tokenInfo{}
	for _, e := range all {
		list = append(list, tokenInfo{e.ID(), e.Principal, e.Name, e.ExpiresAt})
	}
	if c.JSON {
		return r.printJSON(list)
	}
	rows := make([][]string, len(list))
	for i, e := range list {
		until := "never"
		if !e.ExpiresAt.IsZero() {
			until = e.ExpiresAt.Local().Format(time.DateTime)
		}
		rows[i] = []string{e.ID, printable(e.Principal), printable(e.Name), until}
	}
	newPrinter(r).table([]string{"TOKEN", "PRINCIPAL", "NAME", "ENDS"}, rows)
	return nil
}

type tokenRevokeCmd struct {
	tokenFileFlags
	ID        string `arg:"" optional:"" help:"The token's id, as rouse token ls shows it."`
	Principal string `help:"Revoke all tokens of this principal instead." placeholder:"KIND:ID"`
	Stdin     bool   `help:"Revoke the token read from standard input instead: one that leaked."`
}

func (tokenRevokeCmd) Help() string {
	return `What is open already, such as a live read, ends within its greatest age (ROUSE_SSE_MAX_AGE).

Examples:
  rouse token revoke 8c1f0a92d3e4
  rouse token revoke --principal user:ada --file /etc/rouse/tokens`
}

func (c tokenRevokeCmd) Run(r *run) error {
	path, err := c.path(r)
	if err != nil {
		return err
	}
	var match func(devtoken.Entry) bool
	switch {
	case c.ID != "" && c.Principal == "" && !c.Stdin:
		match = func(e devtoken.Entry) bool { return e.ID() == strings.ToLower(c.ID) }
	case c.ID == "" && c.Principal != "" && !c.Stdin:
		p, err := auth.Parse(c.Principal)
		if err != nil {
			return fail(ExitUsage, err)
		}
		match = func(e devtoken.Entry) bool { return e.Principal == p.Key() }
	case c.ID == "" && c.Principal == "" && c.Stdin:
		token, err := readToken(r)
		if err != nil {
			return err
		}
		hash := devtoken.Hash(token)
		match = func(e devtoken.Entry) bool { return strings.EqualFold(e.SHA256, hash) }
	default:
		return failf(ExitUsage, "say which: an id, --principal or --stdin")
	}
	gone, err := devtoken.Remove(path, match)
	if err != nil {
		return err
	}
	for _, e := range gone {
		r.say("revoked %s %s %s", e.ID(), printable(e.Principal), printable(e.Name))
	}
	return nil
}

// readToken reads a token from standard input.
func readToken(r *run) (string, error) {
	sc := bufio.NewScanner(r.io.In)
	if !sc.Scan() || strings.TrimSpace(sc.Text()) == "" {
		return "", failf(ExitUsage, "no token on standard input")
	}
	return strings.TrimSpace(sc.Text()), nil
}

type tokenHashCmd struct {
	Principal string `help:"Who the token acts as, kind:id." required:"" placeholder:"KIND:ID"`
	Name      string `help:"What the token is for." placeholder:"TEXT"`
}

func (c tokenHashCmd) Run(r *run) error {
	p, err := auth.Parse(c.Principal)
	if err != nil {
		return fail(ExitUsage, err)
	}
	token, err := readToken(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(r.io.Out, devtoken.Entry{Principal: p.Key(), SHA256: devtoken.Hash(token), Name: c.Name}.Line())
	return err
}
