package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/intake"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	// maxAttachment bounds a file in bytes, maxField any other field of its form.
	maxAttachment = 25 << 20
	maxField      = 64 << 10
	// maxParts bounds the fields of a form.
	maxParts = 32
	// uploads are written at once at most, since the database's driver copies what
	// it sends.
	uploads = 4
	// attachmentPage is how much of a file is held while it is read.
	attachmentPage = 1 << 20
	// attachmentWrite is how long a reader may take for one page.
	attachmentWrite = 30 * time.Second
)

// Attachment is a file as the entity's manifest tells of it.
type Attachment struct {
	Key        string            `json:"key"`
	Kind       string            `json:"kind" enum:"attachment"`
	ID         string            `json:"id"`
	StreamPath string            `json:"streamPath"`
	Status     string            `json:"status" enum:"complete"`
	Subject    AttachmentSubject `json:"subject"`
	Role       string            `json:"role" enum:"input,output"`
	MimeType   string            `json:"mimeType"`
	Filename   string            `json:"filename,omitempty"`
	ByteLength int               `json:"byteLength"`
	SHA256     string            `json:"sha256"`
	CreatedAt  string            `json:"createdAt"`
	CreatedBy  string            `json:"createdBy"`
	Meta       json.RawMessage   `json:"meta,omitempty"`
}

// AttachmentSubject is the row that a file belongs to.
type AttachmentSubject struct {
	Type string `json:"type" enum:"inbox,run,text,tool_call,context"`
	Key  string `json:"key"`
}

var attachmentSubjects = []string{"inbox", "run", "text", "tool_call", "context"}

type attachmentOutput struct {
	TxID       string     `json:"txid" format:"uuid"`
	Attachment Attachment `json:"attachment"`
}

type attachmentRefInput struct {
	EntityRef
	Key string `path:"key" doc:"The attachment's id."`
}

func (c *Control) registerAttachments() {
	c.uploading, c.uploads = make(chan struct{}, uploads), newUploadRoom()
	tags := []string{"entities"}
	codes := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized}
	text := &huma.Schema{Type: huma.TypeString}
	file := &huma.Schema{Type: huma.TypeString, Format: "binary"}
	ref := []*huma.Param{
		{Name: "service", In: "query", Schema: text}, {Name: "type", In: "path", Required: true, Schema: text}, {Name: "id", In: "path", Required: true, Schema: text},
	}
	key := &huma.Param{Name: "key", In: "path", Required: true, Description: "The attachment's id.", Schema: text}
	form := &huma.Schema{Type: huma.TypeObject, Required: []string{"file"}, Properties: map[string]*huma.Schema{
		"file": file, "subject": {Type: huma.TypeString, Description: "JSON {type, key}: the row the file belongs to; type is inbox, run, text, tool_call or context."},
		"subjectType": text, "subjectKey": text, "role": {Type: huma.TypeString, Enum: []any{"input", "output"}}, "id": text, "filename": text, "mimeType": text,
		"meta": {Type: huma.TypeString, Description: "A JSON object."}}}
	answer := huma.SchemaFromType(c.api.OpenAPI().Components.Schemas, reflect.TypeFor[attachmentOutput]())
	addRaw(c, huma.Operation{OperationID: "putAttachment", Method: http.MethodPost, Path: entityPath + "/attachments", Tags: tags,
		Summary: "Attach a file of at most 25 MiB to an entity", Parameters: ref,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"multipart/form-data": {Schema: form}}},
		Responses:   map[string]*huma.Response{"201": {Description: "Created", Content: map[string]*huma.MediaType{"application/json": {Schema: answer}}}}},
		append([]problem.Code{problem.NotRunning, problem.StreamExists, problem.PayloadTooLarge, problem.RequestTimeout, problem.Overloaded}, codes...), c.putAttachment)
	addRaw(c, huma.Operation{OperationID: "getAttachment", Method: http.MethodGet, Path: entityPath + "/attachments/{key}", Tags: tags,
		Summary: "A file of an entity", Parameters: append(slices.Clone(ref), key),
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: file}}}}},
		codes, c.getAttachment)
	add(c, huma.Operation{OperationID: "deleteAttachment", Method: http.MethodDelete, Path: entityPath + "/attachments/{key}", Tags: tags,
		Summary: "Remove a file of an entity"}, routeOptions{}, append([]problem.Code{problem.NotRunning}, codes...), c.deleteAttachment)
}

// pathRef reads the entity of a route whose handler is not huma's.
func pathRef(r *http.Request) *EntityRef {
	return &EntityRef{Type: r.PathValue("type"), ID: r.PathValue("id")}
}

var (
	errNoAttachment = problem.New(problem.NotFound, "The entity has no such attachment.")
	errForm         = problem.New(problem.InvalidRequest, "Send the file as multipart/form-data with a field \"file\".").
			WithDetails(problem.Detail{Path: "header.Content-Type", Message: "must be multipart/form-data with a boundary"})
	errFormBody = problem.New(problem.InvalidRequest, "The form is malformed or ends early.").
			WithDetails(problem.Detail{Path: "/", Message: "is not a multipart form"})
)

func (c *Control) putAttachment(w http.ResponseWriter, r *http.Request) error {
	ctx, in := r.Context(), pathRef(r)
	if in.Type == principalType {
		return errPrincipalEntity
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
		return errForm
	}
	// Asked before the body is taken in, and decided again with the write.
	if _, err := c.writable(ctx, in); err != nil {
		return err
	}
	who := from(ctx)
	own, leave := c.uploads.enter(uploader{who.service, who.principal()})
	defer leave()
	limited := intake.Reader{Budget: c.cfg.Bodies, Share: c.uploads.all, Own: own, Whole: uploadWhole, Rush: uploadRush, Wait: c.uploads.wait,
		MaxBytes: maxAttachment + maxParts*maxField, Stall: c.cfg.BodyTimeout}
	body, release, err := limited.Read(w, r)
	defer release()
	if err != nil {
		return err
	}
	form, err := parseForm(body, params["boundary"])
	if err != nil {
		return err
	}
	a, details := form.attachment(in.url(), who.principal(), time.Now())
	if len(details) > 0 {
		return invalidFields(details...)
	}
	manifest, err := json.Marshal(a)
	if err != nil {
		return err
	}
	select {
	case c.uploading <- struct{}{}:
		defer func() { <-c.uploading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	out := attachmentOutput{TxID: uuid.NewString(), Attachment: a}
	row := store.Attachment{ID: a.ID, ContentType: a.MimeType, Bytes: form.file, Manifest: manifest}
	if strings.HasPrefix(row.ContentType, "application/json") {
		row.ContentType = "application/octet-stream" // streams of that type hold messages, a file is bytes
	}
	event := staterow.Text(staterow.Headers{Operation: "upsert", TxID: out.TxID}, "manifest", a.Key, json.RawMessage(manifest))
	outcome, err := c.cfg.Store.AttachmentPut(context.WithoutCancel(ctx), who.service, in.url(), who.subjectFor(mayWrite, kindEntity, in.url()), who.principal(), row, event)
	if err == nil {
		err = c.entityRefusal(ctx, in, mayWrite, outcome)
	}
	switch {
	case err != nil:
		return err
	case outcome == "exists":
		return problem.New(problem.StreamExists, "The entity has an attachment with this id. Leave the id out, or choose another.").
			WithDetails(problem.Detail{Path: "/id", Message: "is taken"})
	case outcome != "created":
		return problem.New(problem.StreamExists, "A plain stream has the name of this attachment. Choose another id.")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return jsonFormat.Marshal(w, out)
}

// form is what a client sent; file is a part of the request's body.
type form struct {
	file     []byte
	sum      [sha256.Size]byte
	mimeType string
	filename string
	fields   map[string]string
}

// parseForm reads a multipart form without copying the file.
func parseForm(body []byte, boundary string) (form, error) {
	f := form{fields: map[string]string{}}
	mr := multipart.NewReader(bytes.NewReader(body), boundary)
	delimiter, found, at := []byte("--"+boundary), false, 0
	for range maxParts {
		part, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			if !found {
				return f, problem.New(problem.InvalidRequest, "The form has no file.").WithDetails(problem.Detail{Path: "/file", Message: "is needed"})
			}
			return f, nil
		}
		if err != nil {
			return f, errFormBody
		}
		name := part.FormName()
		if name != "file" {
			value, err := io.ReadAll(io.LimitReader(part, maxField+1))
			if err != nil {
				return f, errFormBody
			}
			if len(value) > maxField {
				return f, problem.Newf(problem.PayloadTooLarge, "A field of the form is larger than %d bytes.", maxField)
			}
			if _, twice := f.fields[name]; twice {
				return f, problem.New(problem.InvalidRequest, "The form has a field twice.")
			}
			f.fields[name] = strings.TrimSpace(string(value))
		}
		start, ok := contentStart(body, at, delimiter)
		if !ok {
			return f, errFormBody
		}
		at = start
		if name != "file" {
			continue
		}
		if found {
			return f, problem.New(problem.InvalidRequest, "The form has more than one file.").WithDetails(problem.Detail{Path: "/file", Message: "is given more than once"})
		}
		h := sha256.New()
		n, err := io.Copy(h, part)
		if err != nil {
			return f, errFormBody
		}
		if n > maxAttachment {
			return f, problem.Newf(problem.PayloadTooLarge, "An attachment has at most %d bytes.", maxAttachment)
		}
		end := start + int(n)
		if end > len(body) || !bytes.HasPrefix(body[end:], append([]byte("\r\n"), delimiter...)) {
			return f, errFormBody
		}
		found, at = true, end
		f.file, f.mimeType, f.filename = body[start:end:end], part.Header.Get("Content-Type"), part.FileName()
		h.Sum(f.sum[:0])
	}
	return f, problem.Newf(problem.InvalidRequest, "The form has more than %d fields.", maxParts)
}

// contentStart finds where the content of the next part begins.
func contentStart(body []byte, from int, delimiter []byte) (int, bool) {
	d := bytes.Index(body[from:], delimiter)
	if d < 0 {
		return 0, false
	}
	head := bytes.Index(body[from+d:], []byte("\r\n\r\n"))
	if head < 0 {
		return 0, false
	}
	return from + d + head + len("\r\n\r\n"), true
}

// attachment checks the form's fields and makes the manifest entry of its file.
func (f form) attachment(entity, by string, now time.Time) (Attachment, []problem.Detail) {
	var details []problem.Detail
	refuse := func(at, why string) { details = append(details, problem.Detail{Path: at, Message: why}) }
	for name, v := range f.fields {
		if !utf8.ValidString(v) || strings.IndexByte(v, 0) >= 0 {
			refuse("/", "a field is not valid UTF-8, or holds a NUL character")
			delete(f.fields, name)
		}
	}
	a := Attachment{Kind: "attachment", ID: f.fields["id"], Status: "complete", Role: f.fields["role"], ByteLength: len(f.file), SHA256: hex.EncodeToString(f.sum[:]),
		CreatedAt: staterow.Time(now), CreatedBy: by, Filename: f.fields["filename"], MimeType: f.fields["mimeType"]}
	if a.ID == "" {
		a.ID = uuid.NewString()
	} else if !attachmentID(a.ID) {
		refuse("/id", "must be of letters, digits, dots, dashes and underscores, at most 128, and not begin with a dot")
	}
	if a.Role == "" {
		a.Role = "input"
	} else if a.Role != "input" && a.Role != "output" {
		refuse("/role", "must be input or output")
	}
	if raw := f.fields["subject"]; raw != "" {
		if checkJSON([]byte(raw)) != nil || json.Unmarshal([]byte(raw), &a.Subject) != nil {
			refuse("/subject", "must be a JSON object {type, key}")
		}
	} else {
		a.Subject = AttachmentSubject{f.fields["subjectType"], f.fields["subjectKey"]}
	}
	if !slices.Contains(attachmentSubjects, a.Subject.Type) {
		refuse("/subject/type", "must be inbox, run, text, tool_call or context")
	}
	if a.Subject.Key == "" || len(a.Subject.Key) > maxKey {
		refuse("/subject/key", "must not be empty or longer than 256 bytes")
	}
	if a.Filename == "" {
		a.Filename = f.filename
	}
	if a.Filename != "" {
		a.Filename = path.Base(strings.ReplaceAll(a.Filename, `\`, "/"))
	}
	if len(a.Filename) > 255 || !utf8.ValidString(a.Filename) || strings.ContainsFunc(a.Filename, unicode.IsControl) {
		refuse("/filename", "must be at most 255 bytes of UTF-8 without control characters")
	}
	if a.MimeType == "" {
		a.MimeType = f.mimeType
	}
	if a.MimeType == "" {
		a.MimeType = "application/octet-stream"
	}
	if media, params, err := mime.ParseMediaType(a.MimeType); err != nil || !strings.Contains(media, "/") || len(a.MimeType) > 255 {
		refuse("/mimeType", "must be a media type such as text/plain")
	} else if a.MimeType = mime.FormatMediaType(media, params); a.MimeType == "" {
		refuse("/mimeType", "must be a media type such as text/plain")
	}
	if raw := f.fields["meta"]; raw != "" {
		if len(raw) > 16<<10 || checkJSON([]byte(raw)) != nil {
			refuse("/meta", "must be a JSON object of at most 16384 bytes")
		} else {
			a.Meta = json.RawMessage(raw)
		}
	}
	a.Key, a.StreamPath = "attachment:"+a.ID, entity+"/attachments/"+a.ID
	if len(a.StreamPath) > maxPath {
		refuse("/id", "makes the path of the attachment's stream too long")
	}
	return a, details
}

func attachmentID(id string) bool {
	return id != "" && len(id) <= 128 && id[0] != '.' && strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
	}) < 0
}

func (c *Control) getAttachment(w http.ResponseWriter, r *http.Request) error {
	ctx, in, id := r.Context(), pathRef(r), r.PathValue("key")
	if !attachmentID(id) {
		return errNoAttachment
	}
	if _, err := c.entityFor(ctx, in, mayRead); err != nil {
		return err
	}
	outcome, stream, size, manifest, err := c.cfg.Store.AttachmentGet(ctx, from(ctx).service, in.url(), "", id)
	switch {
	case err != nil:
		return err
	case outcome != "ok":
		return errNoAttachment
	}
	var a Attachment
	if err := json.Unmarshal(manifest, &a); err != nil {
		return problem.Wrap(problem.Internal, err, "The attachment's entry is broken.")
	}
	h := w.Header()
	h.Set("Content-Type", a.MimeType)
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Content-Disposition", disposition(a.Filename))
	// Kept by whoever was let read it, and asked about each time: the right may have
	// been taken back, and the id given to another file.
	h.Set("Cache-Control", "private, no-cache")
	h.Set("ETag", `"`+a.SHA256+`"`)
	if r.Header.Get("If-None-Match") == h.Get("ETag") {
		h.Del("Content-Length")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if r.Method == http.MethodHead {
		return nil
	}
	// The first page is read before anything is answered: what fails then is told.
	rc := http.NewResponseController(w)
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	for pos := int64(0); pos < size; {
		page, err := c.cfg.Store.StreamRead(ctx, store.ReadRequest{ID: stream, From: &pos, MaxBytes: attachmentPage, MaxRows: 1})
		if err == nil && (page.Outcome != store.OK || page.Next <= pos) {
			err = errNoAttachment
		}
		if err != nil && pos == 0 {
			for _, name := range []string{"Content-Type", "Content-Length", "Content-Disposition", "ETag"} {
				h.Del(name)
			}
			h.Set("Cache-Control", "no-store")
			return err
		} else if err != nil {
			// Too late for a refusal: the connection ends short of the announced length.
			panic(http.ErrAbortHandler)
		}
		_ = rc.SetWriteDeadline(time.Now().Add(attachmentWrite))
		if _, err := w.Write(page.Data); err != nil {
			return nil // the reader has left
		}
		pos = page.Next
	}
	return nil
}

// disposition names a file for whoever saves it: ASCII for old readers, and all
// of it in UTF-8 (RFC 6266, RFC 8187). A file is never shown in place, whatever
// its type.
func disposition(filename string) string {
	if filename == "" {
		return "attachment"
	}
	var ascii, full strings.Builder
	for _, r := range filename {
		if r < 0x20 || r > 0x7e || r == '"' || r == '\\' || r == '%' {
			ascii.WriteByte('_')
		} else {
			ascii.WriteRune(r)
		}
	}
	const plain = "!#$&+-.^_`|~"
	for i := range len(filename) {
		if b := filename[i]; b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte(plain, b) >= 0 {
			full.WriteByte(b)
		} else {
			fmt.Fprintf(&full, "%%%02X", b)
		}
	}
	return `attachment; filename="` + ascii.String() + `"; filename*=UTF-8''` + full.String()
}

func (c *Control) deleteAttachment(ctx context.Context, in *attachmentRefInput) (*rowOutput, error) {
	if !attachmentID(in.Key) {
		return nil, errNoAttachment
	}
	if in.Type == principalType {
		return nil, errPrincipalEntity
	}
	if _, err := c.entityFor(ctx, &in.EntityRef, mayWrite); err != nil {
		return nil, err
	}
	who, out := from(ctx), &rowOutput{}
	out.Body.TxID = uuid.NewString()
	event := staterow.Text(staterow.Headers{Operation: "delete", TxID: out.Body.TxID}, "manifest", "attachment:"+in.Key, nil)
	outcome, err := c.cfg.Store.AttachmentDelete(ctx, who.service, in.url(), who.subjectFor(mayWrite, kindEntity, in.url()), who.principal(), in.Key, event)
	if err == nil {
		err = c.entityRefusal(ctx, &in.EntityRef, mayWrite, outcome)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}
