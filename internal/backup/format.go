package backup

import (
	"encoding/json"
	"time"
)

// Magic begins each backup. The version of the format and a line feed follow.
const Magic = "sluice-hub-backup "

// Format is the version of the format that this package writes, and the only one that it reads.
const Format = "1"

// Header describes a backup.
type Header struct {
	// Taken is when the hub was read.
	Taken time.Time `json:"taken"`
	// Revision of the hub that the backup has, a resource version.
	Revision string `json:"revision"`
	// Hub is the hub's ID.
	Hub string `json:"hub"`
	// Version of the Sluice that made the backup.
	Version string `json:"version"`
}

// File is a file that belongs to the hub.
type File struct {
	Name    string `json:"name"`
	Content []byte `json:"content"`
}

// Entry is a line of a backup. One field is set.
type Entry struct {
	Header *Header `json:"header,omitempty"`
	File   *File   `json:"file,omitempty"`
	// Object is a resource in JSON, without its resource version.
	Object json.RawMessage `json:"object,omitempty"`
	End    *End            `json:"end,omitempty"`
}

// End is the last entry.
type End struct {
	// Entries is the number of entries before it.
	Entries int `json:"entries"`
	// SHA256 of their lines, with the line feeds.
	SHA256 []byte `json:"sha256"`
}
