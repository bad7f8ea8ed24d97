// Package sigstoretest is a Sigstore for tests, in this process: an authority that certifies any identity, a
// transparency log and a timestamp authority.
package sigstoretest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"
)

// Sigstore is one instance, with keys of its own.
type Sigstore struct {
	virtual *ca.VirtualSigstore
	// Root is its trusted_root.json. StrictRoot adds a log of certificates, which lists none of them.
	Root, StrictRoot []byte
}

// New returns a Sigstore whose certificates are valid from now on.
func New() (*Sigstore, error) {
	virtual, err := ca.NewVirtualSigstore()
	if err != nil {
		return nil, err
	}
	s := &Sigstore{virtual: virtual}
	s.Root, err = s.trustedRoot(nil)
	if err != nil {
		return nil, err
	}
	s.StrictRoot, err = s.trustedRoot(virtual.CTLogs())
	return s, err
}

func (s *Sigstore) trustedRoot(certificates map[string]*root.TransparencyLog) ([]byte, error) {
	logs := s.virtual.RekorLogs()
	for _, all := range []map[string]*root.TransparencyLog{logs, certificates} {
		for id, log := range all {
			var err error
			log.ID, err = hex.DecodeString(id)
			if err != nil {
				return nil, err
			}
		}
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, s.virtual.FulcioCertificateAuthorities(),
		certificates, s.virtual.TimestampingAuthorities(), logs)
	if err != nil {
		return nil, err
	}
	return trusted.MarshalJSON()
}

// File returns the bundle of a file that an identity signed at a time. The certificate is valid for ten
// minutes from now on.
func (s *Sigstore) File(identity, issuer string, data []byte, at time.Time) ([]byte, error) {
	signed, err := s.virtual.SignAtTime(identity, issuer, data, at)
	if err != nil {
		return nil, err
	}
	return s.encode(signed)
}

// Statement returns the bundle of an in-toto statement that an identity signed now.
func (s *Sigstore) Statement(identity, issuer, statement string) ([]byte, error) {
	signed, err := s.virtual.Attest(identity, issuer, []byte(statement))
	if err != nil {
		return nil, err
	}
	return s.encode(signed)
}

func (s *Sigstore) encode(signed *ca.TestEntity) ([]byte, error) {
	content, err := signed.VerificationContent()
	if err != nil {
		return nil, err
	}
	entries, err := signed.TlogEntries()
	if err != nil {
		return nil, err
	}
	times, err := signed.Timestamps()
	if err != nil {
		return nil, err
	}
	signature, err := signed.SignatureContent()
	if err != nil {
		return nil, err
	}
	kind, err := bundle.MediaTypeString("0.3")
	if err != nil {
		return nil, err
	}
	stamps := &protobundle.TimestampVerificationData{}
	material := &protobundle.VerificationMaterial{TimestampVerificationData: stamps}
	material.Content = &protobundle.VerificationMaterial_Certificate{
		Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw}}
	for _, entry := range entries {
		logged := entry.TransparencyLogEntry()
		if err := s.prove(logged); err != nil {
			return nil, err
		}
		material.TlogEntries = append(material.TlogEntries, logged)
	}
	for _, one := range times {
		stamps.Rfc3161Timestamps = append(stamps.Rfc3161Timestamps,
			&protocommon.RFC3161SignedTimestamp{SignedTimestamp: one})
	}
	made := &protobundle.Bundle{MediaType: kind, VerificationMaterial: material}
	if message := signature.MessageSignatureContent(); message != nil {
		made.Content = &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256,
				Digest: message.Digest()},
			Signature: message.Signature()}}
	} else {
		envelope := signature.EnvelopeContent().RawEnvelope()
		payload, err := envelope.DecodeB64Payload()
		if err != nil {
			return nil, err
		}
		made.Content = &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{Payload: payload,
			PayloadType: envelope.PayloadType,
			Signatures:  []*protodsse.Signature{{Sig: signature.Signature()}}}}
	}
	return protojson.Marshal(made)
}

// prove adds the inclusion promise and the inclusion proof to an entry of the log.
func (s *Sigstore) prove(entry *protorekor.TransparencyLogEntry) error {
	var kind struct{ Kind, APIVersion string }
	if err := json.Unmarshal(entry.CanonicalizedBody, &kind); err != nil {
		return err
	}
	entry.KindVersion = &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion}
	promise, err := s.virtual.RekorSignPayload(tlog.RekorPayload{LogID: hex.EncodeToString(entry.LogId.KeyId),
		Body:           base64.StdEncoding.EncodeToString(entry.CanonicalizedBody),
		IntegratedTime: entry.IntegratedTime, LogIndex: entry.LogIndex})
	if err != nil {
		return err
	}
	proof, err := s.virtual.GetInclusionProof(entry.CanonicalizedBody)
	if err != nil {
		return err
	}
	top, err := hex.DecodeString(*proof.RootHash)
	entry.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	entry.InclusionProof = &protorekor.InclusionProof{LogIndex: *proof.LogIndex, TreeSize: *proof.TreeSize,
		RootHash: top, Checkpoint: &protorekor.Checkpoint{Envelope: *proof.Checkpoint}}
	return err
}
