// Package sql owns the current text of every database function, one a file, whose header comment is its contract. It
// promises `create or replace` only, so that the whole set can be applied at any time. It must not know tables'
// history: that is in package migrations.
package sql

import "embed"

// FS holds functions/<name>.sql files.
//
//go:embed functions/*.sql
var FS embed.FS
