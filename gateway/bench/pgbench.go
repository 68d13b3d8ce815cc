package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// pgbench measures the floor: one row of the same size a transaction, with Postgres' own tool over the unix socket, on
// the same server and settings. It returns transactions a second.
func (r *rig) pgbench(ctx context.Context, conns int) (float64, error) {
	const database = "floor"
	if err := r.pg.Exec(ctx, "postgres", "drop database if exists "+database, "create database "+database); err != nil {
		return 0, err
	}
	if err := r.pg.Exec(ctx, database, "create table floor (id bigint generated always as identity primary key, payload bytea not null)"); err != nil {
		return 0, err
	}
	script := filepath.Join(r.dir, "floor.sql")
	insert := "insert into floor (payload) values ('" + strings.Repeat("x", payload) + "');\n"
	if err := os.WriteFile(script, []byte(insert), 0o644); err != nil {
		return 0, err
	}
	out, err := r.pg.Run(ctx, "pgbench", "-h", r.pg.Dir(), "-U", "postgres", "-n", "-M", "prepared", "-f", script,
		"-c", strconv.Itoa(conns), "-j", strconv.Itoa(min(conns, 2)), "-T", strconv.Itoa(max(1, int(r.Duration.Seconds()))), database)
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	m := regexp.MustCompile(`tps = ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench did not say its rate: %s", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
