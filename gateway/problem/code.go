package problem

import (
	"slices"
	"time"
)

// Code names a kind of error for ever. Codes of the Durable Streams and
// Electric Agents wire keep that wire's name and status.
type Code string

// Info says what a code means.
type Info struct {
	Status int
	Title  string
	// Retryable says whether the same request can succeed later.
	Retryable bool
	// RetryAfter is the default wait before a retry.
	RetryAfter time.Duration
}

// The codes.
const (
	InvalidRequest         Code = "INVALID_REQUEST"
	InvalidPath            Code = "INVALID_PATH"
	InvalidJSON            Code = "INVALID_JSON"
	OffsetInvalid          Code = "OFFSET_INVALID"
	InvalidSignal          Code = "INVALID_SIGNAL"
	InvalidPrincipal       Code = "INVALID_PRINCIPAL"
	InvalidWakeUnregister  Code = "INVALID_WAKE_UNREGISTER"
	InvalidTarget          Code = "INVALID_TARGET"
	WebhookURLRejected     Code = "WEBHOOK_URL_REJECTED"
	InvalidWhere           Code = "INVALID_WHERE"
	TableNotAllowed        Code = "TABLE_NOT_ALLOWED"
	Unauthenticated        Code = "UNAUTHENTICATED"
	Unauthorized           Code = "UNAUTHORIZED"
	ClaimTokenInvalid      Code = "CLAIM_TOKEN_INVALID"
	Forbidden              Code = "FORBIDDEN"
	RunnerForbidden        Code = "RUNNER_FORBIDDEN"
	OriginForbidden        Code = "ORIGIN_FORBIDDEN"
	PathReserved           Code = "PATH_RESERVED"
	ProducerFenced         Code = "PRODUCER_FENCED"
	NotFound               Code = "NOT_FOUND"
	StreamNotFound         Code = "STREAM_NOT_FOUND"
	UnknownEntityType      Code = "UNKNOWN_ENTITY_TYPE"
	WakeCallbackNotFound   Code = "WAKE_CALLBACK_NOT_FOUND"
	ServiceNotFound        Code = "SERVICE_NOT_FOUND"
	MethodNotAllowed       Code = "METHOD_NOT_ALLOWED"
	NotAcceptable          Code = "NOT_ACCEPTABLE"
	RequestTimeout         Code = "REQUEST_TIMEOUT"
	StreamExists           Code = "STREAM_EXISTS"
	StreamClosed           Code = "STREAM_CLOSED"
	StreamHasForks         Code = "STREAM_HAS_FORKS"
	ContentTypeMismatch    Code = "CONTENT_TYPE_MISMATCH"
	SequenceConflict       Code = "SEQUENCE_CONFLICT"
	ProducerGap            Code = "PRODUCER_GAP"
	DuplicateURL           Code = "DUPLICATE_URL"
	NotRunning             Code = "NOT_RUNNING"
	SchemaKeyExists        Code = "SCHEMA_KEY_EXISTS"
	ForkInProgress         Code = "FORK_IN_PROGRESS"
	ForkWaitTimeout        Code = "FORK_WAIT_TIMEOUT"
	EpochHeld              Code = "EPOCH_HELD"
	EpochStale             Code = "EPOCH_STALE"
	LeaseExpired           Code = "LEASE_EXPIRED"
	AlreadyClaimed         Code = "ALREADY_CLAIMED"
	NoPendingWork          Code = "NO_PENDING_WORK"
	Fenced                 Code = "FENCED"
	InvalidOffset          Code = "INVALID_OFFSET"
	SubscriptionNotFound   Code = "SUBSCRIPTION_NOT_FOUND"
	SubscriptionExists     Code = "SUBSCRIPTION_ALREADY_EXISTS"
	TokenInvalid           Code = "TOKEN_INVALID"
	WakeResolved           Code = "WAKE_RESOLVED"
	RunnerFull             Code = "RUNNER_FULL"
	RunnerExists           Code = "RUNNER_EXISTS"
	RunnerDisabled         Code = "RUNNER_DISABLED"
	PoolForbidden          Code = "POOL_FORBIDDEN"
	PoolExists             Code = "POOL_EXISTS"
	PoolDisabled           Code = "POOL_DISABLED"
	PoolFull               Code = "POOL_FULL"
	NotPoolMember          Code = "NOT_POOL_MEMBER"
	JoinTokenInvalid       Code = "JOIN_TOKEN_INVALID"
	NotParked              Code = "NOT_PARKED"
	StreamGone             Code = "STREAM_GONE"
	OffsetGone             Code = "OFFSET_GONE"
	PayloadTooLarge        Code = "PAYLOAD_TOO_LARGE"
	URITooLong             Code = "URI_TOO_LONG"
	SchemaValidationFailed Code = "SCHEMA_VALIDATION_FAILED"
	UnknownMessageType     Code = "UNKNOWN_MESSAGE_TYPE"
	UnknownEventType       Code = "UNKNOWN_EVENT_TYPE"
	RateLimited            Code = "RATE_LIMITED"
	Internal               Code = "INTERNAL_SERVER_ERROR"
	ServeEndpointMismatch  Code = "SERVE_ENDPOINT_NAME_MISMATCH"
	ServeEndpointFailed    Code = "SERVE_ENDPOINT_UNREACHABLE"
	NotReady               Code = "NOT_READY"
	NotConfigured          Code = "NOT_CONFIGURED"
	ServerStopping         Code = "SERVER_STOPPING"
	Overloaded             Code = "OVERLOADED"
	DatabaseUnavailable    Code = "DATABASE_UNAVAILABLE"
	DatabaseReadOnly       Code = "DATABASE_READ_ONLY"
	AuthUnavailable        Code = "AUTH_UNAVAILABLE"
	PluginUnavailable      Code = "PLUGIN_UNAVAILABLE"
	DatabaseTimeout        Code = "DATABASE_TIMEOUT"
)

var table = map[Code]Info{
	InvalidRequest:         {400, "The request is not valid", false, 0},
	InvalidPath:            {400, "The path is not valid", false, 0},
	InvalidJSON:            {400, "The body is not valid JSON", false, 0},
	OffsetInvalid:          {400, "The offset is not valid", false, 0},
	InvalidSignal:          {409, "The entity cannot take this signal now", false, 0},
	InvalidWakeUnregister:  {400, "Nothing says what to unregister", false, 0},
	InvalidPrincipal:       {400, "The principal is malformed", false, 0},
	InvalidTarget:          {400, "The dispatch target is not valid", false, 0},
	WebhookURLRejected:     {400, "The webhook address is not allowed", false, 0},
	InvalidWhere:           {400, "The where clause is not valid", false, 0},
	Unauthenticated:        {401, "Credentials are missing or not valid", false, 0},
	Unauthorized:           {401, "Credentials are missing, or the caller may not do this", false, 0},
	ClaimTokenInvalid:      {401, "The claim token is not valid", false, 0},
	Forbidden:              {403, "The caller may not do this", false, 0},
	RunnerForbidden:        {403, "The runner belongs to somebody else", false, 0},
	OriginForbidden:        {403, "The gateway does not serve other sites", false, 0},
	TableNotAllowed:        {403, "The table cannot be synced", false, 0},
	PathReserved:           {403, "The path is reserved", false, 0},
	ProducerFenced:         {403, "A newer producer epoch exists", false, 0},
	NotFound:               {404, "Not found", false, 0},
	StreamNotFound:         {404, "The stream does not exist", false, 0},
	UnknownEntityType:      {404, "The entity type does not exist", false, 0},
	WakeCallbackNotFound:   {404, "The wake does not exist", false, 0},
	ServiceNotFound:        {404, "The service does not exist", false, 0},
	MethodNotAllowed:       {405, "The method is not allowed here", false, 0},
	NotAcceptable:          {406, "No representation fits", false, 0},
	RequestTimeout:         {408, "The request took too long to arrive", true, 0},
	StreamExists:           {409, "The stream exists with another configuration", false, 0},
	StreamClosed:           {409, "The stream is closed", false, 0},
	StreamHasForks:         {409, "The stream was deleted but forks still read it", false, 0},
	ContentTypeMismatch:    {409, "The content type differs from the stream's", false, 0},
	SequenceConflict:       {409, "The sequence does not advance", false, 0},
	ProducerGap:            {409, "A producer sequence is missing", true, 0},
	DuplicateURL:           {409, "An entity with this url exists", false, 0},
	NotRunning:             {409, "The entity is not running", false, 0},
	SchemaKeyExists:        {409, "The schema key exists", false, 0},
	ForkInProgress:         {409, "Somebody else forks or extends the tree", true, time.Second},
	ForkWaitTimeout:        {409, "The entities did not become idle in time", true, time.Second},
	EpochHeld:              {409, "Another holder has the claim", true, 0},
	EpochStale:             {409, "A newer epoch exists", false, 0},
	LeaseExpired:           {409, "The lease has ended", false, 0},
	AlreadyClaimed:         {409, "Another holder has the claim", true, 0},
	NoPendingWork:          {409, "There is no pending work", true, 0},
	Fenced:                 {409, "A newer generation exists", false, 0},
	InvalidOffset:          {409, "The acknowledged offset is out of range", false, 0},
	SubscriptionNotFound:   {404, "The subscription does not exist", false, 0},
	SubscriptionExists:     {409, "The subscription exists with another configuration", false, 0},
	TokenInvalid:           {401, "The token is not valid for this wake", false, 0},
	WakeResolved:           {409, "The wake is over", false, 0},
	RunnerFull:             {409, "The runner's capacity is used up", true, time.Second},
	RunnerExists:           {409, "The runner id is taken", false, 0},
	RunnerDisabled:         {409, "The runner is disabled", false, 0},
	PoolForbidden:          {403, "The worker pool belongs to somebody else", false, 0},
	PoolExists:             {409, "The worker pool id is taken", false, 0},
	PoolDisabled:           {409, "The worker pool is disabled", false, 0},
	PoolFull:               {409, "The worker pool's capacity is used up", true, time.Second},
	NotPoolMember:          {403, "The runner is no active member of the pool", false, 0},
	JoinTokenInvalid:       {401, "The join token is not valid", false, 0},
	NotParked:              {409, "The work is not parked", false, 0},
	StreamGone:             {410, "The stream was deleted", false, 0},
	OffsetGone:             {410, "The offset is no longer kept", false, 0},
	PayloadTooLarge:        {413, "The body is too large", false, 0},
	URITooLong:             {414, "The path is too long", false, 0},
	SchemaValidationFailed: {422, "The value does not match the schema", false, 0},
	UnknownMessageType:     {422, "The message type is not known", false, 0},
	UnknownEventType:       {422, "The event type is not known", false, 0},
	RateLimited:            {429, "Too many requests", true, time.Second},
	Internal:               {500, "Internal error", true, 0},
	ServeEndpointMismatch:  {400, "The serve endpoint announces another type", false, 0},
	ServeEndpointFailed:    {502, "The serve endpoint did not answer", true, time.Second},
	NotConfigured:          {503, "The gateway is not set up for this", false, 0},
	NotReady:               {503, "The gateway is not ready", true, time.Second},
	ServerStopping:         {503, "The gateway is shutting down", true, time.Second},
	Overloaded:             {503, "The gateway is overloaded", true, time.Second},
	DatabaseUnavailable:    {503, "The database is not available", true, time.Second},
	DatabaseReadOnly:       {503, "The database is read-only", true, time.Second},
	AuthUnavailable:        {503, "Authentication is not available", true, time.Second},
	PluginUnavailable:      {503, "The plugin is not available", true, time.Second},
	DatabaseTimeout:        {503, "The database took too long", true, time.Second},
}

// Info returns what the code means; an unknown code reads as INTERNAL.
func (c Code) Info() Info {
	if i, ok := table[c]; ok {
		return i
	}
	return table[Internal]
}

// Codes lists every code in alphabetical order, for documentation and tests.
func Codes() []Code {
	out := make([]Code, 0, len(table))
	for c := range table {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}
