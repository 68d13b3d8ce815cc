// Package migrations owns the numbered changes of the database's tables, indexes and publications, as golang-migrate
// reads them. It promises that the first line of each says whether the previous release's binary keeps working
// (`-- compat: safe`) or not (`-- compat: breaking`), and that a landed file never changes. It must not know functions:
// those are in package sql.
package migrations

import "embed"

// FS holds NNNNNN_name.up.sql files.
//
//go:embed *.up.sql
var FS embed.FS
