package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

type poolCmd struct {
	Create poolCreateCmd `cmd:"" help:"Make a worker pool, or change it."`
	Ls     poolLsCmd     `cmd:"" aliases:"ps,list" help:"List the pools that you own or have a runner in."`
	Show   poolShowCmd   `cmd:"" help:"Show a pool with its members and load."`
	Rm     poolRmCmd     `cmd:"" help:"Remove a pool; what waits in it goes to the next target, or is parked."`
	Add    poolAddCmd    `cmd:"" help:"Put runners into a pool: your own at once, others are invited."`
	Drain  poolDrainCmd  `cmd:"" help:"Give a member no new work; what it holds it finishes."`
	Remove poolRemoveCmd `cmd:"" help:"Take runners out of a pool."`
	Invite poolInviteCmd `cmd:"" help:"Print a token with which others put their runners into your pool."`
	Join   poolJoinCmd   `cmd:"" help:"Put your runner into another's pool, by invitation or by token."`
}

// workerPool is a pool as the gateway shows it.
type workerPool struct {
	ID             string           `json:"id"`
	Name           string           `json:"name"`
	OwnerPrincipal string           `json:"owner_principal"`
	AdminStatus    string           `json:"admin_status"`
	WakeStream     string           `json:"wake_stream"`
	CapacityPolicy capacityPolicy   `json:"capacity_policy"`
	Members        []workerPoolSeat `json:"members"`
	ActiveClaims   int64            `json:"active_claims"`
	WaitingWakes   int64            `json:"waiting_wakes"`
	CreatedAt      time.Time        `json:"created_at"`
	UpdatedAt      time.Time        `json:"updated_at"`
}

type capacityPolicy struct {
	MaxPerRunner *int32 `json:"maxConcurrentClaimsPerRunner,omitempty"`
	MaxTotal     *int32 `json:"maxTotalClaims,omitempty"`
}

type workerPoolSeat struct {
	RunnerID       string `json:"runner_id"`
	OwnerPrincipal string `json:"owner_principal,omitempty"`
	Label          string `json:"label,omitempty"`
	Status         string `json:"status"`
	Liveness       string `json:"liveness,omitempty"`
	ActiveClaims   int64  `json:"active_claims"`
	Capacity       *int32 `json:"capacity,omitempty"`
}

const poolsPath = "/_electric/worker-pools"

func poolPath(id string) string { return poolsPath + "/" + url.PathEscape(id) }

func memberPath(pool, runner string) string {
	return poolPath(pool) + "/members/" + url.PathEscape(runner)
}

func most(n *int32) string {
	if n == nil {
		return "any"
	}
	return fmt.Sprint(*n)
}

type poolCreateCmd struct {
	clientFlags
	ID           string `arg:"" help:"The pool's id. It belongs to whoever makes it first."`
	Name         string `help:"What people see; default: the id." placeholder:"TEXT"`
	MaxPerRunner *int32 `help:"How many of its wakes one runner holds at once; default: any number." placeholder:"N"`
	MaxTotal     *int32 `help:"How many of its wakes all runners hold at once; default: any number." placeholder:"N"`
	NoLimits     bool   `help:"Take the limits of a pool that is there away."`
	Disable      bool   `xor:"admin" help:"Nothing of it is granted any more."`
	Enable       bool   `xor:"admin" help:"It is granted again."`
}

func (poolCreateCmd) Help() string {
	return `All runners of a pool read its wakes, and the first to claim one has it. The limits are counted from claims. On a change the limits are given together: one that is left out goes.

Examples:
  rouse pool create coding --name 'Coding agents' --max-per-runner 2 --max-total 20
  rouse pool create coding --no-limits
  rouse pool create coding --disable`
}

func (c *poolCreateCmd) Run(r *run) error {
	if c.NoLimits && (c.MaxPerRunner != nil || c.MaxTotal != nil) {
		return failf(ExitUsage, "--no-limits and limits are given together")
	}
	body := map[string]any{}
	if c.Name != "" {
		body["name"] = c.Name
	}
	if c.NoLimits || c.MaxPerRunner != nil || c.MaxTotal != nil {
		body["capacity_policy"] = capacityPolicy{c.MaxPerRunner, c.MaxTotal}
	}
	switch {
	case c.Disable:
		body["admin_status"] = "disabled"
	case c.Enable:
		body["admin_status"] = "enabled"
	}
	return c.connected(r, func(k *caller) error {
		var p workerPool
		if err := k.ask(&p, k.plain(http.MethodPut, poolPath(c.ID), body)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(p)
		}
		total := "any number of"
		if n := p.CapacityPolicy.MaxTotal; n != nil {
			total = "at most " + most(n)
		}
		k.printf("pool %s of %s is %s: %s claims, %s for one runner\n", printable(p.ID), principal(p.OwnerPrincipal), k.status(p.AdminStatus),
			total, most(p.CapacityPolicy.MaxPerRunner))
		if len(p.Members) == 0 {
			r.say(`It has no members: "rouse pool add %s RUNNER" adds yours, "rouse pool invite %s" makes a token for others.`, printable(p.ID), printable(p.ID))
		}
		return nil
	})
}

type poolLsCmd struct{ clientFlags }

func (poolLsCmd) Help() string {
	return `Examples:
  rouse pool ls
  rouse pool ls --json | jq -r '.[] | select(.waiting_wakes > 0) | .id'`
}

func (c *poolLsCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		list := []workerPool{}
		for after := ""; ; {
			var page []workerPool
			if err := k.ask(&page, k.plain(http.MethodGet, poolsPath+"?after="+url.QueryEscape(after), nil)); err != nil {
				return err
			}
			list = append(list, page...)
			if len(page) < pageOf {
				break
			}
			after = page[len(page)-1].ID
		}
		if k.json {
			return r.printJSON(list)
		}
		if len(list) == 0 {
			r.say(`There are none. "rouse pool create ID" makes one.`)
			return nil
		}
		rows := make([][]string, len(list))
		for i, p := range list {
			online := 0
			for _, m := range p.Members {
				if m.Status == "active" && m.Liveness == "online" {
					online++
				}
			}
			rows[i] = []string{printable(p.ID), k.status(p.AdminStatus), fmt.Sprintf("%d of %d", online, len(p.Members)),
				fmt.Sprintf("%d of %s", p.ActiveClaims, most(p.CapacityPolicy.MaxTotal)), fmt.Sprint(p.WaitingWakes), principal(p.OwnerPrincipal), oneLine(p.Name, 40)}
		}
		k.table([]string{"POOL", "ADMIN", "ONLINE", "CLAIMS", "WAITING", "OWNER", "NAME"}, rows)
		return nil
	})
}

type poolShowCmd struct {
	clientFlags
	ID string `arg:"" help:"The pool's id."`
}

func (c *poolShowCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var p workerPool
		if err := k.ask(&p, k.plain(http.MethodGet, poolPath(c.ID), nil)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(p)
		}
		k.fields("pool", k.paint(bold, printable(p.ID)), "name", oneLine(p.Name, 80), "owner", principal(p.OwnerPrincipal), "admin", k.status(p.AdminStatus),
			"claims", fmt.Sprintf("%d of %s", p.ActiveClaims, most(p.CapacityPolicy.MaxTotal)), "for one runner", most(p.CapacityPolicy.MaxPerRunner),
			"waiting wakes", fmt.Sprint(p.WaitingWakes), "wake stream", printable(p.WakeStream), "made", ago(p.CreatedAt))
		if len(p.Members) == 0 {
			return nil
		}
		k.printf("\n")
		rows := make([][]string, len(p.Members))
		for i, m := range p.Members {
			capacity := most(m.Capacity)
			if m.Liveness == "" {
				capacity = "" // of an invited runner nothing is known
			}
			rows[i] = []string{printable(m.RunnerID), k.status(m.Status), k.status(m.Liveness), fmt.Sprint(m.ActiveClaims), capacity, principal(m.OwnerPrincipal), oneLine(m.Label, 40)}
		}
		k.table([]string{"RUNNER", "STATUS", "LIVENESS", "CLAIMS", "CAPACITY", "OWNER", "LABEL"}, rows)
		return nil
	})
}

type poolRmCmd struct {
	clientFlags
	ID string `arg:"" help:"The pool's id."`
}

func (c *poolRmCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		if err := k.ask(nil, k.plain(http.MethodDelete, poolPath(c.ID), nil)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(map[string]any{"ok": true, "id": c.ID})
		}
		k.printf("removed pool %s\n", printable(c.ID))
		return nil
	})
}

type poolAddCmd struct {
	clientFlags
	ID     string   `arg:"" help:"The pool's id."`
	Runner []string `arg:"" help:"The runner's id, or several."`
}

func (poolAddCmd) Help() string {
	return `A runner of yours is in at once; another's is invited, and is in when its owner says "rouse pool join". It also takes a drained member back, and one that was removed.

Where a gateway takes who names nobody for the system, as "rouse dev" does, that one's word counts for both owners and nobody is invited: name yourself with --as or ROUSE_AS.

Examples:
  rouse pool add coding sandbox-1 sandbox-2
  rouse pool add coding adas-laptop --as user:kyle`
}

func (c *poolAddCmd) Run(r *run) error {
	return c.members(r, c.ID, c.Runner, map[string]any{}, nil)
}

// members puts runners into a pool, or changes what they are in it.
func (f clientFlags) members(r *run, pool string, runners []string, body map[string]any, advice map[string]string) error {
	return f.connected(r, func(k *caller) error {
		k.advice = advice
		all := []workerPoolSeat{}
		var errs []error
		for _, id := range runners {
			var m workerPoolSeat
			if err := k.ask(&m, k.plain(http.MethodPut, memberPath(pool, id), body)); err != nil {
				errs = append(errs, k.explain(err))
				continue
			}
			all = append(all, m)
			if !k.json {
				k.printf("%s is %s in %s\n", printable(m.RunnerID), k.status(m.Status), printable(pool))
			}
		}
		if k.json {
			errs = append(errs, r.printJSON(all))
		}
		if slices.ContainsFunc(all, func(m workerPoolSeat) bool { return m.Status == "invited" }) && !k.json {
			r.say(`Who is invited accepts with "rouse pool join %s RUNNER".`, printable(pool))
		}
		if others := slices.IndexFunc(all, func(m workerPoolSeat) bool { return m.Status == "active" && m.OwnerPrincipal != nobodys }); others >= 0 && k.nobody() && !k.json {
			r.say("Nobody was named, so the gateway took you for the system, and %s of %s was not asked: with --as user:NAME others' runners are invited.",
				printable(all[others].RunnerID), principal(all[others].OwnerPrincipal))
		}
		return errors.Join(errs...)
	})
}

type poolDrainCmd struct {
	clientFlags
	ID     string   `arg:"" help:"The pool's id."`
	Runner []string `arg:"" help:"The runner's id, or several."`
}

func (poolDrainCmd) Help() string {
	return `"rouse pool show" shows what it still holds; "rouse pool add" takes it back.

Examples:
  rouse pool drain coding sandbox-1`
}

func (c *poolDrainCmd) Run(r *run) error {
	return c.members(r, c.ID, c.Runner, map[string]any{"status": "disabled"}, nil)
}

type poolRemoveCmd struct {
	clientFlags
	ID     string   `arg:"" help:"The pool's id."`
	Runner []string `arg:"" help:"The runner's id, or several."`
}

func (poolRemoveCmd) Help() string {
	return `What they hold runs to its end. A join token that others still use does not let them in again; "rouse pool add" does.

Examples:
  rouse pool remove coding sandbox-1`
}

func (c *poolRemoveCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		removed := []string{}
		var errs []error
		for _, id := range c.Runner {
			if err := k.ask(nil, k.plain(http.MethodDelete, memberPath(c.ID, id), nil)); err != nil {
				errs = append(errs, k.explain(err))
				continue
			}
			removed = append(removed, id)
			if !k.json {
				k.printf("%s is not in %s any more\n", printable(id), printable(c.ID))
			}
		}
		if k.json {
			errs = append(errs, r.printJSON(removed))
		}
		return errors.Join(errs...)
	})
}

type poolInviteCmd struct {
	clientFlags
	ID     string        `arg:"" help:"The pool's id."`
	TTL    time.Duration `help:"How long the token can be used." default:"1h"`
	Revoke bool          `help:"End every token made so far instead; members stay."`
}

func (poolInviteCmd) Help() string {
	return `The token is all that standard output gets. Whoever has it may put runners of their own into the pool until it expires.

Examples:
  rouse pool invite coding --ttl 24h
  rouse pool invite coding --revoke`
}

func (c *poolInviteCmd) Run(r *run) error {
	if !c.Revoke && c.TTL < time.Second {
		return failf(ExitUsage, "--ttl must be at least 1s")
	}
	return c.connected(r, func(k *caller) error {
		if c.Revoke {
			if err := k.ask(nil, k.plain(http.MethodDelete, poolPath(c.ID)+"/join-tokens", nil)); err != nil {
				return err
			}
			if k.json {
				return r.printJSON(map[string]any{"ok": true, "id": c.ID})
			}
			k.printf("the join tokens of %s have ended\n", printable(c.ID))
			return nil
		}
		var t struct {
			JoinToken string    `json:"join_token"`
			ExpiresAt time.Time `json:"expires_at"`
		}
		if err := k.ask(&t, k.plain(http.MethodPost, poolPath(c.ID)+"/join-tokens", map[string]any{"ttl_seconds": int64(c.TTL.Seconds())})); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(t)
		}
		k.printf("%s\n", printable(t.JoinToken))
		r.say("It can be used until %s, with \"rouse pool join %s RUNNER\" and the token in ROUSE_JOIN_TOKEN.", t.ExpiresAt.Local().Format(time.DateTime), printable(c.ID))
		return nil
	})
}

type poolJoinCmd struct {
	clientFlags
	ID        string   `arg:"" help:"The pool's id."`
	Runner    []string `arg:"" help:"The id of a runner of yours, or of several."`
	JoinToken string   `help:"What \"rouse pool invite\" printed (ROUSE_JOIN_TOKEN, which keeps it out of process lists); not needed where its owner has invited the runner." placeholder:"TOKEN"`
}

func (poolJoinCmd) Help() string {
	return `Examples:
  rouse pool join coding laptop
  ROUSE_JOIN_TOKEN=rouse_jt_… rouse pool join coding laptop`
}

func (c *poolJoinCmd) Run(r *run) error {
	body := map[string]any{}
	if token := joinToken(r, c.JoinToken); token != "" {
		body["join_token"] = token
	}
	return c.members(r, c.ID, c.Runner, body, map[string]string{
		"POOL_FORBIDDEN": fmt.Sprintf(`the pool's owner lets it in: "rouse pool add %s RUNNER"; if the runner is not yours, act as its owner`, printable(c.ID))})
}

// joinToken is the one that a flag or the environment gives.
func joinToken(r *run, flag string) string {
	if flag != "" {
		return flag
	}
	return strings.TrimSpace(r.environ()["ROUSE_JOIN_TOKEN"])
}
