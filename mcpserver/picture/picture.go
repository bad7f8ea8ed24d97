// Package picture converts a file to a picture for a model: a PNG, JPEG, GIF or WebP that can be decoded, at
// most [MaxSide] pixels wide and high and at most [MaxBytes] large. Clients pass pictures to their models
// unchanged, some without any check, so a file that cannot be decoded is not a picture here.
//
// The files are untrusted. Guarantees:
//   - dimensions are read, and bounded, before anything is decoded, also for a frame that a WebP declares
//     larger than its canvas;
//   - one picture is decoded at a time, and all reads of a file fail after a timeout: a progressive JPEG of a
//     megabyte can take hours;
//   - if a decoder panics, the file is not a picture.
//
// A picture that is small enough is returned as the file's own bytes; further frames and data after its end
// are not checked. A larger one is scaled and encoded again, as PNG or, if that is too large, as JPEG on
// white; the orientation in the metadata of a photo is lost, like all metadata. The content is not inspected:
// a secret that a script draws is not found.
//
// The decoders are from the standard library and golang.org/x/image, with the same maintainers, for WebP and
// scaling.
package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"time"

	"golang.org/x/image/draw"
	"golang.org/x/image/webp"
)

const (
	// MaxSide is the maximum width and height of a shown picture in pixels.
	MaxSide = 2000
	// MaxBytes is the maximum size of a shown picture in bytes, before base64.
	MaxBytes = 1 << 20

	maxFile   = 32 << 20        // maximum size of a file
	maxPixels = 20_000_000      // maximum of a picture to decode
	pixelCost = 12              // maximum memory of a pixel in bytes
	maxSide   = 1 << 16         // pixels; scaling takes memory for each besides
	patience  = 5 * time.Second // for one file
	strip     = 100             // rows that are scaled together
	chunk     = 256             // bytes that a decoder reads between two checks of the timeout
)

// Picture is a file as shown to a model.
type Picture struct {
	Data          []byte
	MIMEType      string // of Data
	Width, Height int    // of the picture in the file, in pixels
	Scaled        bool   // Data is not the file's own bytes
}

// format is a file format, recognized by its first bytes.
type format struct {
	mimeType string
	magic    string // ? matches any byte
	config   func(io.Reader) (image.Config, error)
	decode   func(io.Reader) (image.Image, error)
}

var formats = []format{
	{"image/png", "\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode},
	{"image/jpeg", "\xff\xd8\xff", jpeg.DecodeConfig, jpeg.Decode},
	{"image/gif", "GIF8?a", gif.DecodeConfig, gif.Decode},
	{"image/webp", "RIFF????WEBP", webp.DecodeConfig, webp.Decode},
}

// turn is held while a picture is decoded.
var turn = make(chan struct{}, 1)

// Borrow waits for n bytes of memory and reports whether it got them; giveBack releases them.
type Borrow func(ctx context.Context, n int) (giveBack func(), ok bool)

// Decode returns the picture in a file, or nil if it cannot be shown. It takes at most some seconds, and 350
// MB of memory, which it requests from borrow unless that is nil. It returns nil if ctx ends.
func Decode(ctx context.Context, file []byte, borrow Borrow) *Picture {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return of(ctx, file, borrow)
}

// of is Decode with the timeout in ctx.
func of(ctx context.Context, file []byte, borrow Borrow) (shown *Picture) {
	f := formatOf(file)
	if f == nil || len(file) > maxFile {
		return nil
	}
	defer func() {
		if recover() != nil {
			shown = nil
		}
	}()
	config, err := f.config(&patient{ctx, bytes.NewReader(file)})
	if err != nil || !f.decodes(file, config) {
		return nil
	}
	if borrow != nil {
		giveBack, ok := borrow(ctx, pixelCost*config.Width*config.Height+len(file))
		if !ok {
			return nil
		}
		defer giveBack()
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil
	}
	decoded, err := f.decode(&patient{ctx, bytes.NewReader(file)})
	if err != nil {
		return nil
	}
	shown = &Picture{Data: file, MIMEType: f.mimeType, Width: config.Width, Height: config.Height}
	if max(config.Width, config.Height) <= MaxSide && len(file) <= MaxBytes {
		return shown
	}
	shown.Scaled = true
	shown.Data, shown.MIMEType = encode(ctx, decoded, f.mimeType == "image/jpeg")
	if shown.Data == nil {
		return nil
	}
	return shown
}

func formatOf(file []byte) *format {
	for i := range formats {
		magic := formats[i].magic
		fits := len(file) >= len(magic)
		for at := 0; fits && at < len(magic); at++ {
			fits = magic[at] == '?' || magic[at] == file[at]
		}
		if fits {
			return &formats[i]
		}
	}
	return nil
}

// decodes reports whether a file of the format, which declares config, may be decoded.
func (f *format) decodes(file []byte, config image.Config) bool {
	return decodable(config.Width, config.Height) && (f.mimeType != "image/webp" || framesFit(file))
}

func decodable(width, height int) bool {
	return width > 0 && height > 0 && max(width, height) <= maxSide && width <= maxPixels/height
}

// framesFit reports whether every frame of a WebP file has dimensions that may be decoded. An extended file
// declares a canvas, but the decoder allocates each frame with the frame's own dimensions.
func framesFit(file []byte) bool {
	// The RIFF header and the word WEBP take 12 bytes.
	for rest := file[12:]; len(rest) >= 8; {
		kind, size := string(rest[:4]), int64(binary.LittleEndian.Uint32(rest[4:]))
		rest = rest[8:]
		body := rest[:min(size, int64(len(rest)))]
		width, height := 1, 1
		// Both formats have 14 bits for each dimension (RFC 6386, section 9.1); VP8L stores it less one.
		switch {
		case kind == "VP8 " && len(body) >= 10:
			width = int(binary.LittleEndian.Uint16(body[6:]) & 0x3fff)
			height = int(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
		case kind == "VP8L" && len(body) >= 5:
			bits := binary.LittleEndian.Uint32(body[1:])
			width, height = int(bits&0x3fff)+1, int(bits>>14&0x3fff)+1
		}
		if !decodable(width, height) {
			return false
		}
		// A chunk of an odd size is padded.
		rest = rest[min(size+size%2, int64(len(rest))):]
	}
	return true
}

// encode returns a picture within the bounds and its type, or nil if ctx ended.
func encode(ctx context.Context, from image.Image, lossy bool) ([]byte, string) {
	bounds := from.Bounds()
	for side := float64(MaxSide); ctx.Err() == nil && side > 1; side *= 0.7 {
		factor := min(1, side/float64(max(bounds.Dx(), bounds.Dy())))
		size := image.Rect(0, 0, max(1, int(float64(bounds.Dx())*factor)),
			max(1, int(float64(bounds.Dy())*factor)))
		scaled := image.NewNRGBA(size)
		// A scaler takes 32 bytes for each source row and target column, so scale in strips.
		for at := 0; at < size.Dy(); at += strip {
			to := image.Rect(0, at, size.Dx(), min(at+strip, size.Dy()))
			part := bounds
			part.Min.Y = bounds.Min.Y + to.Min.Y*bounds.Dy()/size.Dy()
			part.Max.Y = bounds.Min.Y + to.Max.Y*bounds.Dy()/size.Dy()
			draw.BiLinear.Scale(scaled, to, from, part, draw.Src, nil)
		}
		var b bytes.Buffer
		if !lossy && png.Encode(&b, scaled) == nil && b.Len() <= MaxBytes {
			return b.Bytes(), "image/png"
		}
		flat := image.NewRGBA(size)
		draw.Draw(flat, size, image.NewUniform(color.White), image.Point{}, draw.Src)
		draw.Draw(flat, size, scaled, image.Point{}, draw.Over)
		for _, quality := range []int{85, 60} {
			b.Reset()
			if jpeg.Encode(&b, flat, &jpeg.Options{Quality: quality}) == nil && b.Len() <= MaxBytes {
				return b.Bytes(), "image/jpeg"
			}
		}
	}
	return nil, ""
}

// errPatience is the error of reads after the timeout.
var errPatience = errors.New("picture: the time is over")

// patient reads a file in small chunks until ctx ends.
type patient struct {
	ctx  context.Context
	file *bytes.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, errPatience
	}
	return p.file.Read(b[:min(len(b), chunk)])
}
